package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

// property writes a text of several lines into one line of server.properties.
func property(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", `\n`) }

// keyPEM is the private key of a certificate.
func keyPEM(t *testing.T, cert tls.Certificate) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func certPEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// signed makes the files of a client's certificate for the user CN=weaver that the authority has signed.
func signed(t *testing.T, by tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := x509.ParseCertificate(by.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "weaver"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return write(t, dir, "cert.pem", certPEM(der)), write(t, dir, "key.pem", keyPEM(t, tls.Certificate{PrivateKey: key}))
}

// token is an OAUTHBEARER token as Kafka takes it without a server of tokens: a JWT that nobody has signed.
func token(subject string, lasts time.Duration) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	now := time.Now().Unix()
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, now-1, now+int64(lasts.Seconds()))) + "."
}

// secured is an Apache Kafka that lets nobody do anything who has not been named: by login at the listener LOGIN, by certificate at
// CERT. On its plain address everybody is its administrator.
func secured(t *testing.T) (broker *kafkatest.Broker, by tls.Certificate, ca string) {
	t.Helper()
	by, ca = authority(t)
	const modules = "org.apache.kafka.common.security."
	broker = enginetest.OwnKafka(t, kafkatest.Config{
		Listeners: map[string]string{"LOGIN": "SASL_SSL", "CERT": "SSL"},
		Settings: map[string]string{
			"authorizer.class.name":                              "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                                        "User:ANONYMOUS",
			"ssl.keystore.type":                                  "PEM",
			"ssl.keystore.certificate.chain":                     property(certPEM(by.Certificate[0])),
			"ssl.keystore.key":                                   property(keyPEM(t, by)),
			"ssl.truststore.type":                                "PEM",
			"ssl.truststore.certificates":                        property(certPEM(by.Certificate[0])),
			"listener.name.cert.ssl.client.auth":                 "required",
			"listener.name.login.sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			"listener.name.login.plain.sasl.jaas.config":         modules + `plain.PlainLoginModule required user_weaver="right secret";`,
			"listener.name.login.scram-sha-256.sasl.jaas.config": modules + `scram.ScramLoginModule required;`,
			"listener.name.login.scram-sha-512.sasl.jaas.config": modules + `scram.ScramLoginModule required;`,
			"listener.name.login.oauthbearer.sasl.jaas.config":   modules + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		},
	})
	enginetest.AddUser(t, enginetest.At(broker.Addr()), "weaver", "right secret")
	return broker, by, ca
}

// counting is a pipeline of an extractor and a transformer, under a name of its own.
type counting struct {
	name, file string
	args       []string
}

func newCounting(t *testing.T, broker *kafkatest.Broker, listener, ca string, settings ...string) *counting {
	t.Helper()
	c := &counting{name: enginetest.Unique("login")}
	c.file = write(t, t.TempDir(), "p.yaml", strings.ReplaceAll(`
pipeline: NAME
topics:
  NAME-configs: { partitions: 2, config: { cleanup.policy: compact }, seed: { key: id, records: [{ id: a }, { id: b }] } }
  NAME-in: { partitions: 2 }
  NAME-out: { partitions: 2 }
extractors:
  feed:
    every: 100ms
    config_topics: NAME-configs
    output_topics: NAME-in
    state: { n: 0 }
    poll: |
      yield Message({ value: { n: state.n } });
      yield State({ n: state.n + 1 });
transformers:
  count:
    input_topics: NAME-in
    output_topics: NAME-out
    state: { n: 0 }
    transform: |
      state.n += 1;
      yield State(state);
      yield Message({ value: state });
`, "NAME", c.name))
	if got := flechtwerk(t, nil, "topics", "apply", c.file, "-s", "kafka.brokers="+broker.Addr()); got.status != 0 {
		t.Fatalf("topics apply: %+v", got)
	}
	settings = append([]string{"kafka.brokers=" + broker.Listener(listener), "kafka.tls.enabled=true", "kafka.tls.ca_file=" + ca,
		"http.listen=off", "state.dir=" + t.TempDir()}, settings...)
	for _, s := range settings {
		c.args = append(c.args, "-s", s)
	}
	return c
}

// refused runs the pipeline and answers what the program says in the end. It must end with the status of wrong surroundings.
func (c *counting) refused(t *testing.T, when string) string {
	t.Helper()
	s := start(t, append([]string{"run", c.file}, c.args...)...)
	if status := s.wait(); status != exitSurroundings {
		t.Errorf("%s: exit status %d:\n%s", when, status, s.stderr.String())
	}
	_, said, _ := strings.Cut(s.stderr.String(), "flechtwerk: ")
	return said
}

// works runs the pipeline and waits for results.
func (c *counting) works(t *testing.T, broker *kafkatest.Broker) {
	t.Helper()
	s := start(t, append([]string{"run", c.file}, c.args...)...)
	enginetest.WaitCommitted(t, enginetest.At(broker.Addr()), c.name+"-out", enginetest.AtLeast(3))
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr.String())
	}
}

// rights are what the pipeline needs, as the README lists them.
func (c *counting) rights() (all []enginetest.Right) {
	topic := func(name string, operations ...string) {
		for _, o := range operations {
			all = append(all, enginetest.Right{Operation: o, Topic: name})
		}
	}
	topic(c.name+"-configs", "READ", "DESCRIBE_CONFIGS")
	topic(c.name+"-in", "READ", "WRITE", "DESCRIBE_CONFIGS")
	topic(c.name+"-out", "WRITE", "DESCRIBE_CONFIGS")
	for _, app := range []string{c.name + "-feed", c.name + "-count"} {
		topic(app+"-changelog", "CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")
		all = append(all, enginetest.Right{Operation: "READ", Group: app}, enginetest.Right{Operation: "WRITE", TransactionalIDs: app + "-"})
	}
	return all
}

// On a real Kafka that lets in whom it knows, and to what they have a right.
func TestSecuredKafka(t *testing.T) {
	broker, by, ca := secured(t)
	t.Run("login", func(t *testing.T) { testLogin(t, broker, by, ca) })
	t.Run("right", func(t *testing.T) { testRights(t, broker, ca) })
}

// testLogin tries each kind of login: of somebody whom the broker does not know, and of somebody who has the rights that the README
// asks for.
func testLogin(t *testing.T, broker *kafkatest.Broker, by tls.Certificate, ca string) {
	admin := enginetest.At(broker.Addr())
	password := func(mechanism, password string) []string {
		return []string{"kafka.sasl.mechanism=" + mechanism, "kafka.sasl.user=weaver", "kafka.sasl.password=" + password}
	}
	certificate := func(by tls.Certificate) []string {
		cert, key := signed(t, by)
		return []string{"kafka.tls.cert_file=" + cert, "kafka.tls.key_file=" + key}
	}
	stranger, _ := authority(t)
	for _, login := range []struct {
		name, listener, principal string
		wrong, right              []string
	}{
		{"PLAIN", "LOGIN", "User:weaver", password("PLAIN", "wrong secret"), password("PLAIN", "right secret")},
		{"SCRAM-SHA-256", "LOGIN", "User:weaver", password("SCRAM-SHA-256", "wrong secret"), password("SCRAM-SHA-256", "right secret")},
		{"SCRAM-SHA-512", "LOGIN", "User:weaver", password("SCRAM-SHA-512", "wrong secret"), password("SCRAM-SHA-512", "right secret")},
		{"OAUTHBEARER", "LOGIN", "User:weaver",
			[]string{"kafka.sasl.mechanism=OAUTHBEARER", "kafka.sasl.token=" + token("weaver", -time.Hour)},
			[]string{"kafka.sasl.mechanism=OAUTHBEARER", "kafka.sasl.token_file=" + write(t, t.TempDir(), "token", token("weaver", time.Hour)+"\n")}},
		{"certificate", "CERT", "User:CN=weaver", certificate(stranger), certificate(by)},
	} {
		t.Run(login.name, func(t *testing.T) {
			unknown := newCounting(t, broker, login.listener, ca, login.wrong...)
			if said := unknown.refused(t, "with the wrong login"); strings.Contains(said, "wrong secret") || !strings.Contains(said, "TLS and SASL settings right?") {
				t.Errorf("with the wrong login:\n%s", said)
			}
			known := newCounting(t, broker, login.listener, ca, login.right...)
			enginetest.Allow(t, admin, login.principal, known.rights()...)
			known.works(t, broker)
		})
	}
}

// testRights leaves out each of the rights of the README: then a run ends, says on what it was refused and what to allow. With all of them
// it works.
func testRights(t *testing.T, broker *kafkatest.Broker, ca string) {
	admin := enginetest.At(broker.Addr())
	first := &counting{}
	for i, r := range first.rights() {
		t.Run(r.String(), func(t *testing.T) {
			c := newCounting(t, broker, "LOGIN", ca, "kafka.sasl.mechanism=PLAIN", "kafka.sasl.user=weaver", "kafka.sasl.password=right secret")
			rights := c.rights()
			enginetest.Allow(t, admin, "User:weaver", slices.Concat(rights[:i], rights[i+1:])...)
			said := c.refused(t, "without the right")
			if !strings.Contains(said, rights[i].On()) || !strings.Contains(said, "→ allow the user ") {
				t.Errorf("does not name %s and what to allow:\n%s", rights[i], said)
			}
			enginetest.Allow(t, admin, "User:weaver", rights[i])
			c.works(t, broker)
		})
	}
}
