package main

import (
	"fmt"
	"os"
	"strings"
)

// readDotenv reads NAME=value lines. A value in single quotes is taken as it is, one in double quotes may have \n, \t, \r,
// \" and \\, and one without quotes ends before " #". Nothing is expanded, since a `$` in a password is a `$`.
func readDotenv(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read environment file: %w", err)
	}
	var out []string
	for i, line := range strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !isEnvName(name) {
			return nil, fmt.Errorf("%s:%d: expected NAME=value", path, i+1)
		}
		if value, ok = dotenvValue(strings.TrimSpace(value)); !ok {
			return nil, fmt.Errorf("%s:%d: the quoted value of %s does not end on its line", path, i+1, name)
		}
		out = append(out, name+"="+value)
	}
	return out, nil
}

func isEnvName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || 'Z' < r) && (r < 'a' || 'z' < r) && (i == 0 || r < '0' || '9' < r) {
			return false
		}
	}
	return name != ""
}

func dotenvValue(text string) (string, bool) {
	if text == "" {
		return "", true
	}
	quote := text[0]
	if quote != '\'' && quote != '"' {
		if i := strings.Index(text, " #"); i >= 0 {
			text = strings.TrimSpace(text[:i])
		}
		return text, true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		c := text[i]
		if c == quote {
			rest := strings.TrimSpace(text[i+1:])
			return b.String(), rest == "" || rest[0] == '#'
		}
		if c == '\\' && quote == '"' && i+1 < len(text) {
			i++
			switch c = text[i]; c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'r':
				c = '\r'
			case '"', '\\':
			default:
				b.WriteByte('\\')
			}
		}
		b.WriteByte(c)
	}
	return "", false
}

// overlay is env with the variables of more, of which the last of a name wins.
func overlay(env, more []string) []string {
	at := map[string]int{}
	var out []string
	for _, pair := range append(append([]string(nil), env...), more...) {
		name, _, _ := strings.Cut(pair, "=")
		if i, ok := at[name]; ok {
			out[i] = pair
			continue
		}
		at[name] = len(out)
		out = append(out, pair)
	}
	return out
}

// lookup answers variables of env, the last of a name.
func lookup(env []string) func(string) (string, bool) {
	values := make(map[string]string, len(env))
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}
