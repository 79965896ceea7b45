package http_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/http"
)

// certificate is a certificate that signs itself, and its key, in PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "us"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = io.WriteString(w, name)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(cert)
	server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, c := range []struct {
		name   string
		config http.TLSConfig
		want   string
	}{
		{"the system's", http.TLSConfig{}, "tls"},
		{"ca", http.TLSConfig{CA: ca}, "nobody"},
		{"another ca", http.TLSConfig{CA: cert}, "tls"},
		{"insecure", http.TLSConfig{InsecureSkipVerify: true}, "nobody"},
		{"a certificate", http.TLSConfig{CA: ca, Cert: cert, Key: key}, "us"},
		{"a name", http.TLSConfig{CA: ca, ServerName: "example.com"}, "nobody"},
		{"a wrong name", http.TLSConfig{CA: ca, ServerName: "other.test"}, "tls"},
	} {
		settings, err := c.config.Build()
		if err != nil {
			t.Fatal(err)
		}
		client, err := http.New(http.Config{TLS: settings, Proxy: "direct"})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		response, err := client.Do(t.Context(), &http.Request{URL: server.URL})
		if err != nil {
			got = asCode(err)
		} else {
			text, _ := io.ReadAll(response.Body)
			got = string(text)
		}
		client.Close()
		if got != c.want {
			t.Errorf("%s: got %s (%v), want %s", c.name, got, err, c.want)
		}
	}
	for want, config := range map[string]http.TLSConfig{
		"no certificate in PEM": {CA: []byte("S3CRET")}, "the certificate of the client": {Cert: []byte("S3CRET"), Key: []byte("S3CRET")},
		"without its key": {Cert: cert}, "without its certificate": {Key: key}, "no effect": {CA: ca, InsecureSkipVerify: true},
	} {
		if _, err := config.Build(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
