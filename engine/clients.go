package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Limits of the Kafka clients.
const (
	transactionTimeout = 60 * time.Second       // the broker aborts a transaction that is open for longer
	rebalanceTimeout   = 60 * time.Second       // how long members may take to rejoin
	maxDecompressed    = 256 << 20              // bytes of one decompressed record batch
	defaultBatch       = 1_000_012              // bytes of a record batch for a topic whose limit is unknown: kgo's own default
	minBatch           = 512                    // bytes of a record batch: kgo refuses to produce with a lower limit
	maxBatch           = 64 << 20               // bytes of a record batch, whatever a topic takes
	fetchBytes         = 16 << 20               // bytes of one fetch response
	fetchWait          = 250 * time.Millisecond // how long the broker may hold a fetch open: a partition that is resumed waits for it
	connectTimeout     = 10 * time.Second       // how long the first contact may take (D7)
)

// kafka makes clients for one cluster.
type kafka struct {
	Kafka
	// transactionVersion is the cluster's finalized transaction.version. From 2 on a TxnOffsetCommit adds the group to the
	// transaction by itself and every transaction bumps the producer's epoch.
	transactionVersion int16
}

// options are what all clients share.
func (k *kafka) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.Brokers...),
		kgo.ClientID(k.ClientID),
		kgo.SoftwareNameAndVersion("flechtwerk", "v0"),
		kgo.MaxDecompressBatchBytes(maxDecompressed),
		// Two requests that each add a partition to one transaction can make the broker answer NOT_ENOUGH_REPLICAS; with
		// the default of 5 s before the next metadata request such a transaction stalls.
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(backoff),
		kgo.DisableClientMetrics(),
	}
	if k.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(k.TLS))
	}
	if k.Dial != nil {
		opts = append(opts, kgo.Dialer(k.Dial))
	}
	if k.SASL.Mechanism != "" {
		mechanism, err := k.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(mechanism))
	}
	if k.transactionVersion == 1 {
		versions := kversion.Stable()
		versions.SetMaxKeyVersion(int16(kmsg.Produce), 11)
		versions.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
		versions.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
		opts = append(opts, kgo.MaxVersions(versions))
	}
	return opts, nil
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	switch strings.ToUpper(s.Mechanism) {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256", "SCRAM-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512", "SCRAM-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		if s.Token == nil {
			return nil, errors.New("kafka.sasl: OAUTHBEARER needs a token")
		}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := s.Token(ctx)
			return oauth.Auth{Token: token}, err
		}), nil
	}
	return nil, fmt.Errorf("kafka.sasl.mechanism: %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", s.Mechanism)
}

// client makes a client with opts beside the shared ones.
func (k *kafka) client(opts ...kgo.Opt) (*kgo.Client, error) {
	shared, err := k.options()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(shared, opts...)...)
}

// connect makes the client for requests outside of stages, and learns what the cluster can do. A cluster that does not
// answer in time is an ErrSurroundings.
func connect(ctx context.Context, settings Kafka) (*kafka, *kgo.Client, error) {
	k := &kafka{Kafka: settings}
	cl, err := k.client()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrPipeline, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no answer within %v", connectTimeout))
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cl.Close()
		return nil, nil, fmt.Errorf("%w: kafka.brokers %s: %w; is the broker running, and are address, TLS and SASL settings right?",
			ErrSurroundings, strings.Join(k.Brokers, ","), err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			k.transactionVersion = f.MaxVersionLevel
		}
	}
	return k, cl, nil
}
