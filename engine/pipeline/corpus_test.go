package pipeline

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/expr"
)

var update = flag.Bool("update", false, "write what the tests see into their files")

// corpusEnv is the environment in which the corpus is read.
var corpusEnv = map[string]string{
	"PARTITIONS": "8", "WORD": "eight", "TOPIC": "from-env", "LIMIT": "85", "SINCE": "2026-01-01", "EMPTY": "", "SECRET": "s3cr3t\nvalue: {{ x }} 'and\" #more",
	"PERIOD": "30s", "SPACED": "a b", "TRUE": "true",
}

func corpusOptions() Options {
	return Options{LookupEnv: func(name string) (string, bool) {
		v, ok := corpusEnv[name]
		return v, ok
	}}
}

// namesOf stands for the compiler of scripts: it looks at names alone.
func namesOf(s Stage) (Facts, bool) {
	text := s.Body().Text.Text
	for _, f := range s.Pipeline.Functions {
		text += f.Text
	}
	return Facts{YieldsMessage: strings.Contains(text, "Message"), NamesState: strings.Contains(text, "state") || strings.Contains(text, "State"),
		NamesConfigs: strings.Contains(text, "configs"), NamesProtobuf: strings.Contains(text, "protobuf")}, true
}

// filterRules stand for those of a connector.
var filterRules = SessionRules{
	Filter: func(filter string) error {
		if i := strings.Index(filter, "#"); i >= 0 && i < len(filter)-1 {
			return errors.New("# stands at the end")
		}
		return nil
	},
	Overlap: func(filters []string) error {
		for i, f := range filters {
			if slices.Contains(filters[:i], f) {
				return fmt.Errorf("%s is there twice", f)
			}
		}
		return nil
	},
}

func loadAll(paths []string, o Options) (*Set, Problems) {
	set, problems := Load(paths, o)
	problems = append(problems, set.CheckScripts(namesOf)...)
	problems = append(problems, set.CheckSessions(filterRules)...)
	problems.Sort()
	return set, problems
}

// TestCorpus holds every wrong file, or folder of files, to the problems written beside it.
func TestCorpus(t *testing.T) {
	entries, err := os.ReadDir("testdata/bad")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, entry := range entries {
		path := filepath.Join("testdata/bad", entry.Name())
		if !entry.IsDir() && filepath.Ext(path) != ".yaml" || entry.Name() == "aside" {
			continue
		}
		seen++
		t.Run(strings.TrimSuffix(entry.Name(), ".yaml"), func(t *testing.T) {
			set, problems := loadAll([]string{path}, corpusOptions())
			var out strings.Builder
			printer := Printer{Source: set.Line}
			if err := printer.Print(&out, problems, len(set.Files)); err != nil {
				t.Fatal(err)
			}
			if len(problems) == 0 {
				t.Error("no problem was found")
			}
			for _, p := range problems {
				if _, ok := Explain(p.Code); !ok {
					t.Errorf("code %s is not explained", p.Code)
				}
				checkPlace(t, set, p)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", out.String())
		})
	}
	if seen < 40 {
		t.Errorf("the corpus has only %d wrong files", seen)
	}
}

// checkPlace demands that a problem lies within its file.
func checkPlace(t *testing.T, set *Set, p Problem) {
	if p.Line == 0 && p.Column == 0 {
		return
	}
	line, ok := set.Line(p.File, p.Line)
	if !ok || p.Column < 1 || p.Column > characters(line)+1 {
		t.Errorf("%s lies outside of its file", p.String())
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}

// TestGoodFiles demands that every good file loads without any problem, alone and all together.
func TestGoodFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d good files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			set, problems := loadAll([]string{file}, corpusOptions())
			for _, p := range problems {
				t.Error(p.String())
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".want", describe(set))
		})
	}
}

// describe writes what a Set holds, so that a test can compare it.
func describe(set *Set) string {
	var b strings.Builder
	for _, p := range set.Pipelines {
		fmt.Fprintf(&b, "pipeline %s vars %s\n", p.Name, p.Vars)
		for _, f := range p.Functions {
			fmt.Fprintf(&b, "  functions %s %s\n", f.File, describeText(f.Line, f.Column, f.Text))
		}
		for _, t := range p.Topics {
			fmt.Fprintf(&b, "  topic %s declared=%t partitions=%d key=%s value=%s config=%v\n", t.Name, t.Declared, t.Partitions, t.Key, t.Value, t.Config)
			if t.Seed != nil {
				for r, err := range t.Seed.Records() {
					fmt.Fprintf(&b, "    seed %s → %s line=%d err=%v\n", r.Key, r.Value, r.Line, err)
				}
			}
		}
		for _, e := range p.Extractors {
			fmt.Fprintf(&b, "  extractor %s id=%s every=%s tokens=%d workers=%d timeout=%s on_invalid=%s on_error=%s outputs=%s initial=%s\n", e.Name, e.ApplicationID, e.Every, e.Tokens, e.Workers, e.Timeout, e.OnInvalid,
				describePolicy(e.OnError, e.Retry), topicNames(e.OutputTopics), e.Initial)
			if e.Schedule != nil {
				fmt.Fprintf(&b, "    cron %s\n", e.Schedule)
			}
			if len(e.ConfigTopics) > 0 {
				fmt.Fprintf(&b, "    config_topics %s\n", topicNames(e.ConfigTopics))
			}
			if e.Config != nil {
				fmt.Fprintf(&b, "    config defaults=%s schema=%t\n", e.Config.Defaults, e.Config.schema != nil)
			}
			if e.Where != nil {
				fmt.Fprintf(&b, "    where %s\n", e.Where.Text())
			}
			for _, l := range e.texts {
				fmt.Fprintf(&b, "    expression %s\n", describeText(l.text.Line, l.text.Column, l.text.Text))
			}
			for _, c := range e.Configs {
				fmt.Fprintf(&b, "    config %s %s\n", c.Key, c.Value)
			}
			if e.Enrich.Present() {
				fmt.Fprintf(&b, "    enrich module=%t %s\n", e.Enrich.Module, describeText(e.Enrich.Line, e.Enrich.Column, e.Enrich.Text.Text))
			}
			if e.HTTP != nil {
				describeHTTP(&b, e)
				continue
			}
			if m := e.MQTT; m != nil {
				fmt.Fprintf(&b, "    mqtt %s user=%q client_id=%q qos=%d shared=%t format=%s keep_alive=%s session_expiry=%s receive_maximum=%d inbox=%d/%d leave=%t topics=%d\n", m.Broker, m.User, m.ClientID, m.QoS, m.Shared, m.Format,
					m.KeepAlive, m.SessionExpiry, m.ReceiveMaximum, m.InboxMessages, m.InboxBytes, m.Leave, len(m.Topics))
				for i := range e.Configs {
					filters, err := e.TopicsOf(p, &e.Configs[i], time.UnixMilli(0))
					fmt.Fprintf(&b, "    topics of %s: %v %v\n", e.Configs[i].Key, filters, err)
				}
				if m.TLS != nil {
					fmt.Fprintf(&b, "    tls %+v\n", *m.TLS)
				}
				fmt.Fprintf(&b, "    require %v filter=%t message=%t dead letters %v\n", e.Require, e.Filter != nil, e.Message != nil, []bool{e.InvalidTo != nil, e.ErrorTo != nil})
				if e.Relay.Present() {
					fmt.Fprintf(&b, "    relay module=%t %s\n", e.Relay.Module, describeText(e.Relay.Line, e.Relay.Column, e.Relay.Text.Text))
				}
				continue
			}
			fmt.Fprintf(&b, "    poll module=%t %s\n", e.Poll.Module, describeText(e.Poll.Line, e.Poll.Column, e.Poll.Text.Text))
		}
		for _, tr := range p.Transformers {
			fmt.Fprintf(&b, "  transformer %s id=%s timeout=%s on_error=%s on_invalid=%s outputs=%s state=%t initial=%s\n", tr.Name, tr.ApplicationID, tr.Timeout, describePolicy(tr.OnError, tr.Retry), tr.OnInvalid, topicNames(tr.OutputTopics), tr.HasState, tr.Initial)
			for _, in := range tr.Inputs {
				fmt.Fprintf(&b, "    input %s=%s key=%s value=%s\n", in.Name, in.Topic.Name, in.Key, in.Value)
			}
			if len(tr.ConfigTopics) > 0 {
				fmt.Fprintf(&b, "    config_topics %s\n", topicNames(tr.ConfigTopics))
			}
			if tr.Filter != nil {
				fmt.Fprintf(&b, "    filter %s\n", tr.Filter.Text())
			}
			if tr.StateKey != nil {
				fmt.Fprintf(&b, "    state_key %s\n", tr.StateKey.Text())
			}
			for _, l := range tr.texts {
				fmt.Fprintf(&b, "    expression %s\n", describeText(l.text.Line, l.text.Column, l.text.Text))
			}
			if tr.Transform.Present() {
				fmt.Fprintf(&b, "    transform module=%t %s\n", tr.Transform.Module, describeText(tr.Transform.Line, tr.Transform.Column, tr.Transform.Text.Text))
			} else {
				fmt.Fprintf(&b, "    message %t\n", tr.Message != nil)
			}
		}
	}
	return b.String()
}

// describeHTTP writes a request as it would be for the first config.
func describeHTTP(b *strings.Builder, e *Extractor) {
	h := e.HTTP
	env := &expr.Env{Now: 1000}
	env.Vars, _ = expr.NewDoc([]byte(`{"token":"t0ken","size":50}`))
	env.State, _ = expr.NewDoc([]byte(`{"since":7}`))
	if len(e.Configs) > 0 {
		env.ConfigKey = e.Configs[0].Key
		env.Config, _ = expr.NewDoc(e.Configs[0].Value)
	}
	fill := func(t *expr.Template) string {
		if t == nil {
			return ""
		}
		text, err := t.Append(nil, env)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	url, err := h.URL.AppendURL(nil, env)
	fmt.Fprintf(b, "    http %s %s %v proxy=%s timeout=%s max_bytes=%d redirect=%s\n", h.Method, url, err, h.Proxy, h.Timeout, h.MaxBytes, h.Redirect)
	pairs := func(what string, list []HTTPParam) {
		for _, p := range list {
			fmt.Fprintf(b, "      %s %s: %s\n", what, p.Name, fill(p.Value))
		}
	}
	pairs("query", h.Query)
	pairs("header", h.Headers)
	if body := h.Body; body != nil {
		fmt.Fprintf(b, "      text %s\n", fill(body.Text))
		pairs("form", body.Form)
		var tree func(t *HTTPTree, indent string)
		tree = func(t *HTTPTree, indent string) {
			if t == nil {
				return
			}
			fmt.Fprintf(b, "%s%s%s list=%t\n", indent, fill(t.Value), t.Literal, t.List)
			for i, item := range t.Items {
				if t.Names != nil {
					fmt.Fprintf(b, "%s%s:\n", indent, t.Names[i])
				}
				tree(item, indent+"  ")
			}
		}
		tree(body.JSON, "      json ")
	}
	if a := h.Auth; a != nil {
		switch {
		case a.Basic != nil:
			fmt.Fprintf(b, "      basic %s %s\n", fill(a.Basic.User), fill(a.Basic.Password))
		case a.APIKey != nil:
			fmt.Fprintf(b, "      api_key header=%t %s: %s\n", a.APIKey.InHeader, a.APIKey.Name, fill(a.APIKey.Value))
		case a.OAuth2 != nil:
			o := a.OAuth2
			fmt.Fprintf(b, "      oauth2 %s %s %s %s %v body=%t\n", fill(o.TokenURL), fill(o.ClientID), fill(o.ClientSecret), fill(o.RefreshToken), o.Scopes, o.InBody)
			pairs("param", o.Params)
		default:
			fmt.Fprintf(b, "      bearer %s\n", fill(a.Bearer))
		}
	}
	if t := h.TLS; t != nil {
		fmt.Fprintf(b, "      tls ca=%t cert=%t key=%t name=%s insecure=%t\n", t.CA != nil, t.Cert != nil, t.Key != nil, t.ServerName, t.Insecure)
	}
	if p := h.Paginate; p != nil {
		fmt.Fprintf(b, "      paginate next=%t link=%s cursor=%t page=%t offset=%t start=%d param=%s:%s until=%t stop_when=%t max=%d others=%t\n", p.Next != nil, p.Link, p.Cursor != nil,
			p.HasPage, p.HasOffset, p.Start, p.ParamIn, p.ParamName, p.Until != nil, p.StopWhen != nil, p.MaxPages, p.OtherHosts)
	}
	if t := h.Tail; t != nil {
		fmt.Fprintf(b, "      tail %+v\n", *t)
	}
	if h.Conditional != nil {
		fmt.Fprintf(b, "      conditional %t\n", *h.Conditional)
	}
	d := &h.Decode
	fmt.Fprintf(b, "      decode %s packing=%d members=%s table=%+v invalid=%d separator=%q lists=%v message=%t delimited=%t defaults=%t\n", d.Format, d.Packing, d.Members, d.Table, d.Invalid,
		d.Separator, d.Tree.Lists, d.Message != nil, d.Delimited, d.Defaults)
	fmt.Fprintf(b, "      expect %v retry_after %+v\n", h.Expect, h.RetryAfter)
	if h.Retry != nil {
		fmt.Fprintf(b, "      retry %+v\n", *h.Retry)
	}
	fmt.Fprintf(b, "      secrets %q\n", h.Secrets)
	if e.Records != nil {
		fmt.Fprintf(b, "      records %s\n", e.Records.Text())
	}
	fmt.Fprintf(b, "      message %t", e.Message != nil)
	for _, c := range e.Cursor {
		fmt.Fprintf(b, " cursor %s", c.Name)
	}
	b.WriteByte('\n')
}

func describePolicy(p Policy, b Backoff) string {
	if p != Retry {
		return p.String()
	}
	return fmt.Sprintf("retry %s..%s", b.Min, b.Max)
}

func topicNames(topics []*Topic) []string {
	var names []string
	for _, t := range topics {
		names = append(names, t.Name)
	}
	return names
}

func describeText(line, column int, text string) string {
	return fmt.Sprintf("%d:%d %q", line, column, text)
}
