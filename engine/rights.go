package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What the cluster refuses for lack of rights, and what has to be allowed (the operations of Kafka's ACLs).
var rights = []struct {
	refused error
	allow   string
}{
	{kerr.TopicAuthorizationFailed, "allow the user Read on inputs and config topics, Write and DescribeConfigs on outputs, Create, Read, Write and DescribeConfigs on changelogs, " +
		"and DescribeConfigs on topics that the pipeline gives a config: for; a topic that may not be seen may also be one that does not exist"},
	{kerr.GroupAuthorizationFailed, "allow the user Read on the group, which is the stage's application id"},
	{kerr.TransactionalIDAuthorizationFailed, "allow the user Write on the transactional ids that begin with the stage's application id and a hyphen"},
	{kerr.ClusterAuthorizationFailed, "allow the user Create on the cluster, or have the topics created by somebody who may"},
}

// MissingRight says what has to be allowed where err is the cluster's no for lack of rights, and "" for any other error.
func MissingRight(err error) string {
	for _, r := range rights {
		if errors.Is(err, r.refused) {
			return r.allow
		}
	}
	return ""
}

// denied tells whether err is the broker's no to a user who lacks a right or is unknown, which no retry mends.
func denied(err error) bool {
	return MissingRight(err) != "" || errors.Is(err, kerr.SaslAuthenticationFailed)
}

// surroundings marks what the cluster refuses for lack of rights.
func surroundings(err error) error {
	if denied(err) && !errors.Is(err, ErrSurroundings) {
		return fmt.Errorf("%w: %w", ErrSurroundings, err)
	}
	return err
}

// listTopics is kadm's, but where some topic may not be seen the error says which.
func listTopics(ctx context.Context, adm *kadm.Client, names ...string) (kadm.TopicDetails, error) {
	all, err := adm.ListTopics(ctx, names...)
	return all, nameRefused(err, names, func(name string) error {
		_, err := adm.ListTopics(ctx, name)
		return err
	})
}

// describeConfigs is kadm's DescribeTopicConfigs, but where that is refused the error says for which topics.
func describeConfigs(ctx context.Context, adm *kadm.Client, names ...string) (kadm.ResourceConfigs, error) {
	all, err := adm.DescribeTopicConfigs(ctx, names...)
	return all, nameRefused(err, names, func(name string) error {
		_, err := adm.DescribeTopicConfigs(ctx, name)
		return err
	})
}

// nameRefused puts before err those names that ask is refused for, if err is such a refusal: kadm names none.
func nameRefused(err error, names []string, ask func(name string) error) error {
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return err
	}
	var refused []string
	for _, name := range names {
		if errors.Is(ask(name), kerr.TopicAuthorizationFailed) {
			refused = append(refused, name)
		}
	}
	return fmt.Errorf("%s: %w", strings.Join(refused, ", "), err)
}
