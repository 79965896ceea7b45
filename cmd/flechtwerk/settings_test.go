package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettingsDefaults(t *testing.T) {
	s, err := LoadSettings(settingsSources{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"127.0.0.1:9092"}, s.Kafka.Brokers); diff != "" {
		t.Error(diff)
	}
	got := fmt.Sprintln(s.CommitInterval, s.BatchRecords, s.BatchBytes, s.Kafka.SessionTimeout, s.ShutdownTimeout, s.HTTPListen, s.LogLevel, s.LogFormat, s.State.Dir, s.State.Memory)
	want := "100ms 10000 4194304 10s 10s :8080 INFO logfmt .flechtwerk/state 67108864\n"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s.Kafka.TLS != nil || s.Kafka.SASL.Mechanism != "" {
		t.Error("security is on without being asked for")
	}
}

// Flags win over the environment, which wins over the file, which wins over the defaults.
func TestSettingsLayers(t *testing.T) {
	file := write(t, t.TempDir(), "my.yaml", `
kafka:
  brokers: [file-1:9092, file-2:9092]
  client_id: file
batch.records: 7
commit: { interval: 20ms }
log:
`)
	s, err := LoadSettings(settingsSources{
		file:  file,
		env:   []string{"PATH=/bin", "FLECHTWERK_KAFKA_CLIENT_ID=env", "FLECHTWERK_COMMIT_INTERVAL=30ms", "FLECHTWERK_KAFKA_SESSION_TIMEOUT=1s"},
		flags: []string{"commit.interval=40ms", "http.listen=off"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(s.Kafka.Brokers, s.Kafka.ClientID, s.BatchRecords, s.CommitInterval, s.Kafka.SessionTimeout, s.HTTPListen == "")
	if want := "[file-1:9092 file-2:9092] env 7 40ms 1s true\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSettingsRefused(t *testing.T) {
	file := func(text string) settingsSources {
		return settingsSources{file: write(t, t.TempDir(), "s.yaml", text)}
	}
	flag := func(pairs ...string) settingsSources { return settingsSources{flags: pairs} }
	for _, c := range []struct {
		from settingsSources
		want string
	}{
		{file("kafka:\n  broker: x"), `unknown setting "kafka.broker"; did you mean "kafka.brokers"?`},
		{file("kafka: localhost:9092"), `s.yaml is a group of settings, not a value`},
		{file("kafka.brokers: { a: 1 }"), `unknown setting "kafka.brokers.a"`},
		{file("a: [b"), `read settings of`},
		{settingsSources{file: filepath.Join(t.TempDir(), "none.yaml")}, `no such file`},
		{flag("commit.intervall=1s"), `unknown setting "commit.intervall"; did you mean "commit.interval"?`},
		{flag("kafka.brokers"), `expected key=value`},
		{flag("commit.interval=5"), `setting commit.interval (-s commit.interval): "5" is not a duration; write it as 250ms, 30s, 5m, 48h or 7d`},
		{flag("commit.interval=1.5s"), `"1.5s" is not a duration`},
		{flag("state.memory=lots"), `"lots" is not a size in bytes; write it as 65536, 64KiB, 64MiB or 1GiB`},
		{flag("batch.records=0"), `"0" is not a number of records above 0`},
		{flag("log.level=loud"), `"loud" is not one of debug, info, warn, error`},
		{flag("kafka.brokers=,"), `expected at least one host:port`},
		{flag("standby.replicas=1"), `setting -s standby.replicas of -s is not supported yet`},
		{flag("secrets.keyring=x"), `not supported yet`},
		{flag("kafka.tls.server_name=x"), `has no effect while kafka.tls.enabled is false`},
		{flag("kafka.tls.enabled=maybe"), `"maybe" is neither true nor false`},
		{flag("kafka.tls.enabled=true", "kafka.tls.cert_file=x"), `needs kafka.tls.key_file`},
		{flag("kafka.tls.enabled=true", "kafka.tls.ca_file=/nowhere/ca"), `/nowhere/ca`},
		{flag("kafka.sasl.user=x"), `has no effect without kafka.sasl.mechanism`},
		{flag("kafka.sasl.mechanism=PLAIN", "kafka.sasl.user=u"), `needs either kafka.sasl.password or kafka.sasl.password_file`},
		{flag("kafka.sasl.mechanism=PLAIN", "kafka.sasl.user=u", "kafka.sasl.password=p", "kafka.sasl.token=t"), `has no effect with kafka.sasl.mechanism PLAIN`},
		{flag("kafka.sasl.mechanism=GSSAPI"), `"GSSAPI" is not one of PLAIN, SCRAM-SHA-256`},
		{settingsSources{env: []string{"FLECHTWERK_KAFKA_BROKER=x"}}, `unknown environment variable "FLECHTWERK_KAFKA_BROKER"; did you mean "FLECHTWERK_KAFKA_BROKERS"?`},
		{settingsSources{env: []string{"FLECHTWERK_STANDBY_REPLICAS=1"}}, `not supported yet`},
		{settingsSources{env: []string{"FLECHTWERK_COMMIT_INTERVAL=x"}}, `setting commit.interval (FLECHTWERK_COMMIT_INTERVAL): "x" is not a duration`},
	} {
		_, err := LoadSettings(c.from)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.from, err, c.want)
		}
	}
}

func TestSettingsTellAllThatIsWrong(t *testing.T) {
	_, err := LoadSettings(settingsSources{env: []string{"FLECHTWERK_A=1"}, flags: []string{"b=2", "c=3"}})
	if err == nil || strings.Count(err.Error(), "unknown") != 3 {
		t.Errorf("got %v, want three problems", err)
	}
}

func TestSettingsSecretsAreMasked(t *testing.T) {
	dir := t.TempDir()
	s, err := LoadSettings(settingsSources{flags: []string{"kafka.sasl.mechanism=SCRAM-512", "kafka.sasl.user=u", "kafka.sasl.password=hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(s.Shown()...)
	if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "kafka.sasl.password******") {
		t.Errorf("shown: %s", shown)
	}
	if s.Kafka.SASL.Password != "hunter2" {
		t.Error("the masked value is used")
	}
	_, err = LoadSettings(settingsSources{flags: []string{"kafka.sasl.password=hunter2", "kafka.sasl.token=hunter3", "kafka.sasl.mechanism=x"}})
	if err == nil || strings.Contains(err.Error(), "hunter") {
		t.Errorf("got %v, want an error without a secret", err)
	}
	s, err = LoadSettings(settingsSources{flags: []string{"kafka.sasl.mechanism=PLAIN", "kafka.sasl.user=u", "kafka.sasl.password_file=" + write(t, dir, "pw", "from file\n")}})
	if err != nil || s.Kafka.SASL.Password != "from file" {
		t.Errorf("got %v", err)
	}
}

// A token is read when it is asked for, so that it may be renewed.
func TestSettingsTokenFile(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "token", "one\n")
	s, err := LoadSettings(settingsSources{flags: []string{"kafka.sasl.mechanism=OAUTHBEARER", "kafka.sasl.token_file=" + path}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		write(t, dir, "token", want)
		if got, err := s.Kafka.SASL.Token(t.Context()); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestSettingsTLS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := write(t, dir, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	private := write(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	s, err := LoadSettings(settingsSources{flags: []string{"kafka.tls.enabled=true", "kafka.tls.ca_file=" + cert,
		"kafka.tls.cert_file=" + cert, "kafka.tls.key_file=" + private, "kafka.tls.server_name=kafka"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Kafka.TLS; c == nil || c.RootCAs == nil || len(c.Certificates) != 1 || c.ServerName != "kafka" || c.InsecureSkipVerify {
		t.Errorf("got %+v", c)
	}
	if _, err := LoadSettings(settingsSources{flags: []string{"kafka.tls.enabled=true", "kafka.tls.ca_file=" + private}}); err == nil {
		t.Error("a file without certificate is taken for an authority")
	}
}

func TestDurationsAndSizes(t *testing.T) {
	for text, want := range map[string]time.Duration{"250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "5m": 5 * time.Minute, "48h": 48 * time.Hour, "7d": 7 * 24 * time.Hour} {
		if got, err := parseDuration(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]int64{"1": 1, "12B": 12, "64KiB": 65536, "64 MiB": 64 << 20, "1GiB": 1 << 30, "2MB": 2e6} {
		if got, err := parseSize(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "0", "1.5MiB", "9999999999TiB", "MiB", "1 M"} {
		if _, err := parseSize(text); err == nil {
			t.Errorf("size %q is accepted", text)
		}
	}
	for _, text := range []string{"", "0s", "-1s", "1", "1h30m", "99999999999d"} {
		if _, err := parseDuration(text); err == nil {
			t.Errorf("duration %q is accepted", text)
		}
	}
}

func TestDotenv(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, ".env", "# a comment\nA=1\nexport B = two words # comment\nC='$x #y'\nD=\"a\\nb\\\"\" # z\nE=\nF=p$ss#word\r\n\nA=2\n")
	got, err := readDotenv(path)
	if err != nil {
		t.Fatal(err)
	}
	got = overlay([]string{"A=0", "X=y"}, got)
	slices.Sort(got)
	want := []string{"A=2", "B=two words", "C=$x #y", "D=a\nb\"", "E=", "F=p$ss#word", "X=y"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{"A": ".env:1: expected NAME=value", "\n1A=x": ".env:2: expected", "A='x": "does not end on its line"} {
		if _, err := readDotenv(write(t, dir, ".env", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
