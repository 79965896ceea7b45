package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// authority is a certificate that signs itself, of a broker at 127.0.0.1, and the file that has it.
func authority(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, t.TempDir(), "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// A whole run, from the creation of its topics to its results, against a broker that speaks TLS only and lets nobody in who
// does not log in.
func TestRunLogsInOverTLS(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			cert, ca := authority(t)
			_, other := authority(t)
			fake := enginetest.NewFake(t, enginetest.FakeConfig{
				TLS:   &tls.Config{Certificates: []tls.Certificate{cert}},
				Users: []enginetest.User{{Mechanism: mechanism, Name: "weaver", Password: "right secret"}},
			})
			dir := t.TempDir()
			file := write(t, dir, "shop.yaml", runPipeline)
			login := func(ca, password string) []string {
				return []string{"-s", "kafka.brokers=" + fake.Addrs()[0], "-s", "kafka.tls.enabled=true", "-s", "kafka.tls.ca_file=" + ca,
					"-s", "kafka.sasl.mechanism=" + mechanism, "-s", "kafka.sasl.user=weaver", "-s", "kafka.sasl.password=" + password,
					"-s", "http.listen=127.0.0.1:0", "-s", "state.dir=" + dir + "/state"}
			}
			for name, wrong := range map[string]struct {
				login []string
				says  string
			}{
				"password":  {login(ca, "wrong secret"), "SASL"},
				"authority": {login(other, "right secret"), "certificate"},
			} {
				s := start(t, append([]string{"run", file}, wrong.login...)...)
				if status := s.wait(); status != 3 {
					t.Errorf("with the wrong %s the exit status is %d, want 3:\n%s", name, status, s.stderr.String())
				}
				text := s.stderr.String()
				if !strings.Contains(text, wrong.says) {
					t.Errorf("with the wrong %s nothing says %q:\n%s", name, wrong.says, text)
				}
				if strings.Contains(text, "secret") {
					t.Errorf("with the wrong %s the password is shown:\n%s", name, text)
				}
			}
			if s := start(t, append([]string{"topics", "apply", file}, login(ca, "right secret")...)...); s.wait() != 0 {
				t.Fatalf("topics apply:\n%s", s.stderr.String())
			}
			s := start(t, append([]string{"run", file, "--print", "doubled"}, login(ca, "right secret")...)...)
			s.stdout.Wait(t, 0, `"n":6`)
			if status := s.stop(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, s.stderr.String())
			}
		})
	}
}
