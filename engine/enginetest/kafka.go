package enginetest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

// Environment variables that steer the tests on a real Kafka.
const (
	// EnvKafka is host:port of a running broker to use instead of starting one. Such a broker cannot be killed.
	EnvKafka = "FLECHTWERK_TEST_KAFKA"
	// EnvTier is "kafka" where the tests on a real Kafka shall run; without it they are skipped, since starting one takes
	// longer than all other tests together.
	EnvTier = "FLECHTWERK_TIER"
	// EnvRequireKafka, set to 1, turns "this machine cannot run Kafka" from a skip into a failure.
	EnvRequireKafka = "FLECHTWERK_REQUIRE_KAFKA"
)

var shared = sync.OnceValues(func() (*kafkatest.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return kafkatest.Start(ctx, kafkatest.Config{})
})

// Kafka returns the address of a real Apache Kafka. All tests of a test binary share one, which is started by the first of
// them and ends with the process: tests use Unique names. Outside of the real tier, and where the machine cannot run Kafka, the
// test is skipped.
func Kafka(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv(EnvKafka); addr != "" {
		return addr
	}
	onRealTier(t)
	broker, err := shared()
	unavailable(t, err)
	return broker.Addr()
}

// OwnKafka starts a real Apache Kafka for this test alone, which may kill and restart it. It is closed with the test.
func OwnKafka(t testing.TB, config kafkatest.Config) *kafkatest.Broker {
	t.Helper()
	onRealTier(t)
	broker, err := kafkatest.Start(t.Context(), config)
	unavailable(t, err)
	t.Cleanup(func() { broker.Close() })
	return broker
}

func unavailable(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, kafkatest.ErrNoJava) && os.Getenv(EnvRequireKafka) != "1":
		t.Skipf("no real Kafka here: %v", err)
	default:
		t.Fatal(err)
	}
}

func onRealTier(t testing.TB) {
	t.Helper()
	if os.Getenv(EnvTier) != "kafka" {
		t.Skipf("a test on a real Kafka: it runs with %s=kafka, as in `make integration`", EnvTier)
	}
}
