package engine

import "testing"

func TestNamesInKafkaArePinned(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{changelogTopic("tanks-alerts"), "tanks-alerts-changelog"},
		{transactionalID("tanks-alerts", 0), "tanks-alerts-0"},
		{transactionalID("tanks-alerts", 12), "tanks-alerts-12"},
		{instanceID("tanks-bridge", "host-1"), "tanks-bridge-host-1"},
		{seedID("outlets"), "flechtwerk-seed-outlets"},
		{writeID("outlets"), "flechtwerk-write-outlets"},
		{takeoverKey, "\u0000takeover"},
		{enrichedKey + "de", "\u0000enrich/de"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestTokenVectors(t *testing.T) {
	for key, want := range map[string]int32{
		"london": 4, "english": 6, "translation": 0, "batch-42": 0, "batch-43": 7, "germany-free": 7, "fernverkehr": 3,
		"": 1, "a": 4, "ab": 2, "abc": 3, "abcd": 4,
	} {
		if got := Token(key, 8); got != want {
			t.Errorf("Token(%q, 8) = %d, want %d", key, got, want)
		}
	}
}
