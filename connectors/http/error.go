package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// The codes of errors.
const (
	CodeTimeout     = "timeout"      // it took longer than it may
	CodeConnect     = "connect"      // no connection, or it broke before or during the answer
	CodeDNS         = "dns"          // the name of the host has no address
	CodeTLS         = "tls"          // no agreement on encryption, or a certificate that is not trusted
	CodeTooLarge    = "too_large"    // the answer is larger than a limit
	CodeRedirects   = "redirects"    // too many, to nowhere, or refused
	CodeBreakerOpen = "breaker_open" // the host has failed too often and is left alone
	CodeProtocol    = "protocol"     // the answer breaks the rules of HTTP or of its encoding
	CodeCancelled   = "cancelled"    // the caller gave up
	CodeRequest     = "request"      // the request cannot be sent as it is
)

// Error is a request that came to no answer, or to one that could not be read to its end. It holds no secret.
type Error struct {
	Code   string
	Method string
	URL    string // masked
	Host   string
	// Wait is how long the host is still left alone, for CodeBreakerOpen.
	Wait time.Duration
	Err  error
}

func (e *Error) Error() string { return e.Method + " " + e.URL + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// errTimeout is the cause by which a request's own time ends it.
var errTimeout = errors.New("the request's time is over")

// classify says what an error of the transport means. The contexts come first, since the transport fails in many ways
// once they end.
func (x *exchange) classify(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errTimeout) {
			return &Error{Code: CodeTimeout, Err: fmt.Errorf("took longer than %s, which is the limit %s, while %s: %w",
				x.budget.whole, optionTimeout, phases[x.phase.Load()], context.DeadlineExceeded)}
		}
		return &Error{Code: CodeCancelled, Err: fmt.Errorf("given up while %s: %w", phases[x.phase.Load()], cause)}
	}
	var (
		name     *net.DNSError
		op       *net.OpError
		untested *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		alert    tls.AlertError
	)
	switch text := err.Error(); {
	case errors.As(err, &name):
		return &Error{Code: CodeDNS, Err: err}
	case errors.As(err, &record), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return &Error{Code: CodeTLS, Err: errors.New("the server does not speak TLS here; is it http:// rather than https://?")}
	case errors.As(err, &untested), errors.As(err, &alert), strings.Contains(text, "tls: "), strings.Contains(text, "TLS handshake"):
		return &Error{Code: CodeTLS, Err: err}
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || strings.HasPrefix(op.Op, "socks")):
		return &Error{Code: CodeConnect, Err: err}
	case strings.Contains(text, "server response headers exceeded"):
		return &Error{Code: CodeTooLarge, Err: fmt.Errorf("the header of the answer is larger than %s, which is a fixed limit", wording.Size(maxHeaderBytes))}
	case x.phase.Load() < phaseRead && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNRESET) || strings.Contains(text, "server closed idle connection")):
		return &Error{Code: CodeConnect, Err: fmt.Errorf("the server closed the connection before it answered, while %s: %w", phases[x.phase.Load()], err)}
	case errors.Is(err, syscall.ECONNRESET):
		return &Error{Code: CodeConnect, Err: err}
	case x.phase.Load() < phaseSend:
		return &Error{Code: CodeConnect, Err: err}
	}
	// What is left may quote the answer, which is nobody's business.
	text := strings.TrimPrefix(quoted.ReplaceAllString(err.Error(), "…"), "net/http: ")
	return &Error{Code: CodeProtocol, Err: errors.New("the answer is not as it should be: " + text)}
}
