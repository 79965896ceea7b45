package http

import (
	"errors"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
)

// The codes of a PollError, beside those of decode.Error, expr.Failure, and "http." with the code of an Error.
const (
	CodeStatus    = "http.status"    // a status that is not expected
	CodeNext      = "http.next"      // where the next page is cannot be asked
	CodeRecords   = "http.records"   // what is said to be the items is no list
	CodeState     = "http.state"     // the state cannot be read or written
	CodeAuth      = "http.auth"      // the token server gives no token
	CodeRange     = "http.range"     // an answer to a range is not one
	CodeTruncated = "http.truncated" // a tailed file has become shorter or is another one
	CodeTopic     = "message.topic"
	CodeRecordBig = "record.too_large"
)

// PollError is why a poll failed. It holds no secret and nothing of an answer.
type PollError struct {
	// URL is that of the request, masked; empty if it is about none.
	URL    string
	Status int // of CodeStatus
	code   string
	text   string
	err    error
}

func newPollError(code, text string, err error) *PollError {
	return &PollError{code: code, text: text, err: err}
}

// Code is stable.
func (e *PollError) Code() string { return e.code }

// Error ends with the code, by which a person finds out more.
func (e *PollError) Error() string {
	text := e.text + " (" + e.code + ")"
	if e.URL == "" {
		return text
	}
	return e.URL + ": " + text
}

func (e *PollError) Unwrap() error { return e.err }

// explain makes a PollError of an error of the client, of the decoder or of an expression; others, those of Commit and of a
// relay among them, stay what they are.
func (w *walk) explain(err error) error {
	var (
		done    *PollError
		client  *Error
		wrong   *decode.Error
		failure *expr.Failure
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		return w.secrets.hidden(err)
	case errors.As(err, &client):
		return &PollError{code: "http." + client.Code, text: w.secrets.hide(client.Error()), err: w.secrets.hidden(err)}
	case errors.As(err, &wrong):
		return &PollError{URL: w.shown, code: wrong.Code, text: "the body: " + wrong.Error(), err: err}
	case errors.As(err, &failure):
		text := failure.Error()
		if w.config.Place != nil {
			if place := w.config.Place(failure); place != "" {
				text = place + ": " + text
			}
		}
		return &PollError{code: failure.Code, text: w.secrets.hide(text), err: w.secrets.hidden(failure)}
	}
	return err
}
