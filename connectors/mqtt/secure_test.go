package mqtt_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt/devbroker"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	made := a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.key = made.PrivateKey.(*ecdsa.PrivateKey)
	cert, err := x509.ParseCertificate(made.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	a.pool.AddCert(cert)
	return a
}

func (a *authority) issue(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: "test"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLSWithClientCertificate(t *testing.T) {
	authority := newAuthority(t)
	server := authority.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	client := authority.issue(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	broker := mqtttest.EmbeddedWith(t, devbroker.Config{TLS: &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.pool}})

	connected := make(chan mqtt.ConnectedInfo, 10)
	disconnected := make(chan mqtt.DisconnectedInfo, 1000)
	b := &bench{t: t, grown: make(chan struct{}), configs: []stream.Config{config("default")}}
	b.config = newConfig("mqtts://"+broker, t.Name())
	b.config.Events.Connected = func(i mqtt.ConnectedInfo) { connected <- i }
	b.config.Events.Disconnected = func(i mqtt.DisconnectedInfo) { disconnected <- i }
	for name, test := range map[string]struct {
		config *tls.Config
		want   string // of the failure
	}{
		"both":              {&tls.Config{RootCAs: authority.pool, Certificates: []tls.Certificate{client}}, ""},
		"no certificate":    {&tls.Config{RootCAs: authority.pool}, "certificate required"},
		"unknown authority": {&tls.Config{Certificates: []tls.Certificate{client}}, "unknown authority"},
		"the system's":      {nil, "unknown authority"},
		"another name":      {&tls.Config{RootCAs: authority.pool, Certificates: []tls.Certificate{client}, ServerName: "other"}, "other"},
	} {
		c := b.config
		c.TLS = test.config
		stop, _ := b.startAs(c)
		if test.want == "" {
			if i := await(t, connected, name); i.Broker != "mqtts://"+broker {
				t.Errorf("%s: connected to %s", name, i.Broker)
			}
		} else if i := await(t, disconnected, name); i.Err == nil || !strings.Contains(i.Err.Error(), test.want) {
			t.Errorf("%s: %v", name, i.Err)
		}
		if err := stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for len(disconnected) > 0 {
			<-disconnected
		}
	}
}

func TestUserAndPassword(t *testing.T) {
	broker := mqtttest.EmbeddedWith(t, devbroker.Config{User: "bridge", Password: "open sesame"})
	connected := make(chan mqtt.ConnectedInfo, 10)
	b := &bench{t: t, grown: make(chan struct{}), configs: []stream.Config{config("default")}, tap: mqtttest.NewTap(t, broker)}
	b.config = newConfig("mqtt://"+b.tap.Addr, t.Name())
	b.config.Events.Connected = func(i mqtt.ConnectedInfo) { connected <- i }
	for name, test := range map[string]struct{ broker, user, password string }{
		"config":     {"mqtt://" + b.tap.Addr, "bridge", "open sesame"},
		"in the URL": {"mqtt://bridge:open%20sesame@" + b.tap.Addr, "", ""},
		"wrong":      {"mqtt://" + b.tap.Addr, "bridge", "secret"},
		"config's":   {"mqtt://x:y@" + b.tap.Addr, "bridge", "open sesame"},
		"wrong URL":  {"mqtt://bridge:secret@" + b.tap.Addr, "", ""},
	} {
		c := b.config
		c.Broker, c.User, c.Password = test.broker, test.user, test.password
		stop, ended := b.startAs(c)
		if !strings.HasPrefix(name, "wrong") {
			if i := await(t, connected, name); i.Broker != "mqtt://"+b.tap.Addr {
				t.Errorf("%s: connected to %s", name, i.Broker)
			}
			if err := stop(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		err := b.mustEnd(ended)
		var coded *mqtt.Error
		if !errors.As(err, &coded) || coded.Code != mqtt.CodeRefused || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
