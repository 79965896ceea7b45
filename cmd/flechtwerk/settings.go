package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Settings are what differs between places: brokers, security, limits. They come from four layers, of which the upper wins:
//
//  1. flags: --log-level, --log-format and -s key=value
//  2. the environment: FLECHTWERK_KAFKA_BROKERS is kafka.brokers; a file given with -e adds to it
//  3. the settings file: flechtwerk.yaml in the working folder, or the one given with -c
//  4. the defaults in settingKeys
//
// A key that settingKeys does not have is an error in every layer, so that no typo goes unnoticed.
type Settings struct {
	Kafka           engine.Kafka
	State           engine.State
	HTTPListen      string // empty is no HTTP
	LogLevel        slog.Level
	LogFormat       string // logfmt or json
	CommitInterval  time.Duration
	BatchRecords    int
	BatchBytes      int
	ShutdownTimeout time.Duration
	InstanceID      string

	values map[string]string
	layers []layer
}

type settingKind int

const (
	textSetting settingKind = iota
	secretSetting
	listSetting
	boolSetting
	countSetting
	sizeSetting
	durationSetting
	choiceSetting
)

// settingKey is one key of the settings.
type settingKey struct {
	name    string
	kind    settingKind
	value   string   // the default
	choices []string // of a choiceSetting
}

var settingKeys = []settingKey{
	{name: "kafka.brokers", kind: listSetting, value: "127.0.0.1:9092"},
	{name: "kafka.client_id", value: "flechtwerk"},
	{name: "kafka.session_timeout", kind: durationSetting, value: "10s"},
	{name: "kafka.tls.enabled", kind: boolSetting, value: "false"},
	{name: "kafka.tls.ca_file"},
	{name: "kafka.tls.cert_file"},
	{name: "kafka.tls.key_file"},
	{name: "kafka.tls.server_name"},
	{name: "kafka.tls.insecure_skip_verify", kind: boolSetting, value: "false"},
	{name: "kafka.sasl.mechanism", kind: choiceSetting, choices: []string{"", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-256", "SCRAM-512", "OAUTHBEARER"}},
	{name: "kafka.sasl.user"},
	{name: "kafka.sasl.password", kind: secretSetting},
	{name: "kafka.sasl.password_file"},
	{name: "kafka.sasl.token", kind: secretSetting},
	{name: "kafka.sasl.token_file"},
	{name: "state.dir", value: ".flechtwerk/state"},
	{name: "state.memory", kind: sizeSetting, value: "64MiB"},
	{name: "http.listen", value: ":8080"},
	{name: "log.level", kind: choiceSetting, value: "info", choices: []string{"debug", "info", "warn", "error"}},
	{name: "log.format", kind: choiceSetting, value: "logfmt", choices: []string{"logfmt", "json"}},
	{name: "commit.interval", kind: durationSetting, value: "100ms"},
	{name: "batch.records", kind: countSetting, value: "10000"},
	{name: "batch.bytes", kind: sizeSetting, value: "4MiB"},
	{name: "shutdown.timeout", kind: durationSetting, value: "10s"},
	{name: "instance.id"},
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// laterSettings are keys of the language that this version knows and does not have.
var laterSettings = []string{"standby.replicas", "secrets.keyring"}

// otherVariables begin like settings and steer the project's own tests.
var otherVariables = []string{"FLECHTWERK_KILL", "FLECHTWERK_TEST_KAFKA", "FLECHTWERK_REQUIRE_KAFKA", "FLECHTWERK_REQUIRE_MOSQUITTO", "FLECHTWERK_TIER"}

const (
	settingsFile = "flechtwerk.yaml"
	envPrefix    = "FLECHTWERK_"
)

// settingsSources are where LoadSettings reads from.
type settingsSources struct {
	file  string   // of -c; empty is flechtwerk.yaml in the working folder, if it is there
	env   []string // NAME=value
	flags []string // key=value
}

// layer is one source of settings, flat.
type layer struct {
	name   string
	values *koanf.Koanf
	// spell is how a key is written in this layer.
	spell func(key string) string
}

// LoadSettings reads all layers and checks every key. The error joins all that is wrong, and is the caller's to show with
// exit status 2.
func LoadSettings(from settingsSources) (*Settings, error) {
	s := &Settings{values: map[string]string{}}
	var problems []error

	defaults := map[string]any{}
	for _, k := range settingKeys {
		defaults[k.name] = k.value
	}
	if err := s.add("the defaults", plain, confmap.Provider(defaults, "."), nil); err != nil {
		return nil, err
	}
	if err := s.addFile(from.file); err != nil {
		return nil, err
	}
	problems = append(problems, s.addEnv(from.env)...)
	problems = append(problems, s.addFlags(from.flags)...)

	merged := koanf.New(".")
	for _, l := range s.layers {
		problems = append(problems, l.unknown()...)
		if err := merged.Merge(l.values); err != nil {
			return nil, fmt.Errorf("merge settings of %s: %w", l.name, err)
		}
	}
	if len(problems) == 0 {
		for _, k := range settingKeys {
			text, err := flatten(merged.Get(k.name))
			if err != nil {
				problems = append(problems, fmt.Errorf("setting %s (%s): %w", k.name, s.origin(k.name), err))
				continue
			}
			s.values[k.name] = text
		}
	}
	if len(problems) == 0 {
		problems = s.resolve()
	}
	return s, errors.Join(problems...)
}

func plain(key string) string { return key }

func (s *Settings) add(name string, spell func(string) string, p koanf.Provider, parser koanf.Parser) error {
	read, k := koanf.New("."), koanf.New(".")
	err := read.Load(p, parser)
	if err == nil {
		flat := read.All() // a file may write kafka.brokers as one word
		for key, value := range flat {
			if group, _ := value.(map[string]any); (value == nil || group != nil && len(group) == 0) && (isSetting(key) || isGroup(key)) {
				delete(flat, key) // a key without value says nothing
			}
		}
		err = k.Load(confmap.Provider(flat, "."), nil)
	}
	if err != nil {
		return fmt.Errorf("read settings of %s: %w", name, err)
	}
	s.layers = append(s.layers, layer{name, k, spell})
	return nil
}

func (s *Settings) addFile(path string) error {
	if path == "" {
		if _, err := os.Stat(settingsFile); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		path = settingsFile
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	values, err := pipeline.ParseSettings(text)
	if err != nil {
		return fmt.Errorf("read settings of %s: %w", path, err)
	}
	return s.add(path, plain, confmap.Provider(values, "."), nil)
}

func (s *Settings) addEnv(environ []string) []error {
	byName := map[string]string{}
	for _, name := range knownSettings() {
		byName[envName(name)] = name
	}
	var problems []error
	err := s.add("the environment", envName, env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key, ok := byName[name]
			if !ok && slices.Contains(otherVariables, name) {
				return "", nil
			}
			if !ok {
				names := make([]string, 0, len(settingKeys))
				for _, k := range settingKeys {
					names = append(names, envName(k.name))
				}
				problems = append(problems, unknownSetting("environment variable", name, names))
				return "", nil
			}
			return key, value
		},
	}), nil)
	if err != nil {
		problems = append(problems, err)
	}
	slices.SortFunc(problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return problems
}

func (s *Settings) addFlags(pairs []string) []error {
	var problems []error
	values := map[string]any{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			problems = append(problems, fmt.Errorf("flag -s %s: expected key=value, such as -s kafka.brokers=localhost:9092", pair))
			continue
		}
		values[strings.TrimSpace(key)] = value
	}
	if err := s.add("-s", func(key string) string { return "-s " + key }, confmap.Provider(values, "."), nil); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// unknown names the keys of a layer that no setting has.
func (l layer) unknown() []error {
	var problems []error
	for _, key := range l.values.Keys() {
		switch {
		case isSetting(key):
		case slices.Contains(laterSettings, key):
			problems = append(problems, fmt.Errorf("setting %s of %s is not supported yet; remove it", l.spell(key), l.name))
		case isGroup(key):
			problems = append(problems, fmt.Errorf("setting %q of %s is a group of settings, not a value", key, l.name))
		default:
			problems = append(problems, fmt.Errorf("%s: %w", l.name, unknownSetting("setting", key, knownSettings())))
		}
	}
	return problems
}

func isSetting(key string) bool {
	return slices.ContainsFunc(settingKeys, func(k settingKey) bool { return k.name == key })
}

func isGroup(key string) bool {
	return slices.ContainsFunc(settingKeys, func(k settingKey) bool { return strings.HasPrefix(k.name, key+".") })
}

func unknownSetting(what, name string, known []string) error {
	if near := wording.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown %s %q; did you mean %q?", what, name, near)
	}
	return fmt.Errorf("unknown %s %q", what, name)
}

func knownSettings() []string {
	names := slices.Clone(laterSettings)
	for _, k := range settingKeys {
		names = append(names, k.name)
	}
	return names
}

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// origin says where the value of a key was set, for messages.
func (s *Settings) origin(key string) string {
	for _, l := range slices.Backward(s.layers) {
		if l.values.Exists(key) {
			if spelled := l.spell(key); spelled != key {
				return spelled
			}
			return l.name
		}
	}
	return "not set"
}

// set tells whether a key has a value other than its default.
func (s *Settings) set(key string) bool {
	i := slices.IndexFunc(settingKeys, func(k settingKey) bool { return k.name == key })
	return s.values[key] != settingKeys[i].value
}

// flatten is a value of any layer as text; a list becomes its elements with commas.
func flatten(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case map[string]any:
		return "", errors.New("expected one value, not a group")
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			text, err := flatten(e)
			if err != nil {
				return "", err
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	default:
		return strings.TrimSpace(fmt.Sprint(v)), nil
	}
}

// resolve turns the texts into what the program uses, and checks what belongs together.
func (s *Settings) resolve() []error {
	var problems []error
	fail := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("setting %s (%s): "+format, append([]any{key, s.origin(key)}, args...)...))
	}
	duration := func(key string) time.Duration {
		d, err := parseDuration(s.values[key])
		if err != nil {
			fail(key, "%w", err)
		}
		return d
	}
	size := func(key string) int64 {
		n, err := parseSize(s.values[key])
		if err != nil {
			fail(key, "%w", err)
		}
		return n
	}
	boolean := func(key string) bool {
		b, err := strconv.ParseBool(s.values[key])
		if err != nil {
			fail(key, "%q is neither true nor false", s.values[key])
		}
		return b
	}
	for _, k := range settingKeys {
		if k.kind == choiceSetting && !slices.Contains(k.choices, s.values[k.name]) {
			fail(k.name, "%q is not one of %s", s.values[k.name], strings.Join(nonEmpty(k.choices), ", "))
		}
	}

	s.Kafka.Brokers = nonEmpty(strings.Split(s.values["kafka.brokers"], ","))
	if len(s.Kafka.Brokers) == 0 {
		fail("kafka.brokers", "expected at least one host:port")
	}
	s.Kafka.ClientID = s.values["kafka.client_id"]
	s.Kafka.SessionTimeout = duration("kafka.session_timeout")
	if t := s.Kafka.SessionTimeout; t != 0 && (t < 500*time.Millisecond || t > 30*time.Minute) {
		fail("kafka.session_timeout", "%v is not from 500ms to 30m", t)
	}
	s.State.Dir = s.values["state.dir"]
	s.State.Memory = size("state.memory")
	if s.HTTPListen = s.values["http.listen"]; s.HTTPListen == "off" {
		s.HTTPListen = ""
	}
	s.LogLevel = levels[s.values["log.level"]]
	s.LogFormat = s.values["log.format"]
	s.CommitInterval = duration("commit.interval")
	s.ShutdownTimeout = duration("shutdown.timeout")
	s.InstanceID = s.values["instance.id"]
	s.BatchBytes = int(size("batch.bytes"))
	n, err := strconv.Atoi(strings.ReplaceAll(s.values["batch.records"], ",", ""))
	if err != nil || n < 1 {
		fail("batch.records", "%q is not a number of records above 0", s.values["batch.records"])
	}
	s.BatchRecords = n

	s.resolveTLS(fail, boolean)
	s.resolveSASL(fail)
	return problems
}

func (s *Settings) resolveTLS(fail func(key, format string, args ...any), boolean func(string) bool) {
	if !boolean("kafka.tls.enabled") {
		for _, key := range []string{"ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify"} {
			if s.set("kafka.tls." + key) {
				fail("kafka.tls."+key, "has no effect while kafka.tls.enabled is false; set kafka.tls.enabled to true")
			}
		}
		return
	}
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         s.values["kafka.tls.server_name"],
		InsecureSkipVerify: boolean("kafka.tls.insecure_skip_verify"),
	}
	if path := s.values["kafka.tls.ca_file"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			fail("kafka.tls.ca_file", "%w", err)
		} else if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			fail("kafka.tls.ca_file", "%s holds no certificate in PEM form", path)
		}
	}
	cert, key := s.values["kafka.tls.cert_file"], s.values["kafka.tls.key_file"]
	switch {
	case cert != "" && key != "":
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			fail("kafka.tls.cert_file", "%w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	case cert != "":
		fail("kafka.tls.cert_file", "needs kafka.tls.key_file")
	case key != "":
		fail("kafka.tls.key_file", "needs kafka.tls.cert_file")
	}
	s.Kafka.TLS = c
}

func (s *Settings) resolveSASL(fail func(key, format string, args ...any)) {
	mechanism := s.values["kafka.sasl.mechanism"]
	var used []string
	switch mechanism {
	case "":
	case "OAUTHBEARER":
		used = []string{"token", "token_file"}
	default:
		used = []string{"user", "password", "password_file"}
	}
	for _, name := range []string{"user", "password", "password_file", "token", "token_file"} {
		key := "kafka.sasl." + name
		switch {
		case !s.set(key) || slices.Contains(used, name):
		case mechanism == "":
			fail(key, "has no effect without kafka.sasl.mechanism")
		default:
			fail(key, "has no effect with kafka.sasl.mechanism %s", mechanism)
		}
	}
	s.Kafka.SASL.Mechanism = mechanism
	switch mechanism {
	case "":
	case "OAUTHBEARER":
		token, path := s.values["kafka.sasl.token"], s.values["kafka.sasl.token_file"]
		if (token == "") == (path == "") {
			fail("kafka.sasl.mechanism", "OAUTHBEARER needs either kafka.sasl.token or kafka.sasl.token_file")
		}
		s.Kafka.SASL.Token = func(context.Context) (string, error) {
			if path == "" {
				return token, nil
			}
			return readSecret(path)
		}
		if path != "" {
			if _, err := readSecret(path); err != nil {
				fail("kafka.sasl.token_file", "%w", err)
			}
		}
	default:
		if s.Kafka.SASL.User = s.values["kafka.sasl.user"]; s.Kafka.SASL.User == "" {
			fail("kafka.sasl.mechanism", "%s needs kafka.sasl.user", mechanism)
		}
		password, path := s.values["kafka.sasl.password"], s.values["kafka.sasl.password_file"]
		if (password == "") == (path == "") {
			fail("kafka.sasl.mechanism", "%s needs either kafka.sasl.password or kafka.sasl.password_file", mechanism)
		}
		if path != "" {
			var err error
			if password, err = readSecret(path); err != nil {
				fail("kafka.sasl.password_file", "%w", err)
			}
		}
		s.Kafka.SASL.Password = password
	}
}

// readSecret reads a mounted secret without the line end that editors leave.
func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}

// Shown is every setting with a value, as key and value in turn, fit for a log: secrets are masked.
func (s *Settings) Shown() []any {
	var out []any
	for _, k := range settingKeys {
		value := s.values[k.name]
		if value == "" {
			continue
		}
		if k.kind == secretSetting {
			value = "******"
		}
		out = append(out, k.name, value)
	}
	return out
}

func nonEmpty(texts []string) []string {
	var out []string
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	return out
}
