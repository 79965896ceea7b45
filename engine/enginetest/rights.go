package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Right is an operation of Kafka's ACLs, such as READ, on one of the three: a topic, a group, or all transactional ids that
// begin with TransactionalIDs.
type Right struct {
	Operation                      string
	Topic, Group, TransactionalIDs string
}

// On is the name that the right is about.
func (r Right) On() string { return r.Topic + r.Group + r.TransactionalIDs }

func (r Right) String() string { return r.Operation + " " + r.On() }

// Allow gives rights to a principal, such as User:ada, and returns when the broker goes by them. The cluster is a real one with an
// authorizer, and opts speak for an administrator.
func Allow(t testing.TB, opts []kgo.Opt, principal string, rights ...Right) {
	t.Helper()
	admin := administrator(t, opts)
	for _, r := range rights {
		operation, err := kmsg.ParseACLOperation(r.Operation)
		if err != nil {
			t.Fatal(err)
		}
		acl := kadm.NewACLs().Allow(principal).AllowHosts().Operations(operation).ResourcePatternType(kadm.ACLPatternLiteral)
		switch {
		case r.Topic != "":
			acl.Topics(r.Topic)
		case r.Group != "":
			acl.Groups(r.Group)
		default:
			acl.TransactionalIDs(r.TransactionalIDs).ResourcePatternType(kadm.ACLPatternPrefixed)
		}
		results, err := admin.CreateACLs(t.Context(), acl)
		for _, result := range results {
			err = errors.Join(err, result.Err)
		}
		if err != nil {
			t.Fatalf("allow %s: %v", r, err)
		}
	}
	// A broker answers before it goes by what it has been told, and describes what it goes by.
	of := kadm.NewACLs().AnyResource().Allow(principal).AllowHosts().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny)
	for _, r := range rights {
		for known := false; !known; {
			described, err := admin.DescribeACLs(t.Context(), of)
			if err != nil {
				t.Fatalf("describe the rights of %s: %v", principal, err)
			}
			for _, d := range described {
				known = known || slices.ContainsFunc(d.Described, func(a kadm.DescribedACL) bool { return a.Name == r.On() && a.Operation.String() == r.Operation })
			}
		}
	}
}

// AddUser makes a user who can log in by SCRAM.
func AddUser(t testing.TB, opts []kgo.Opt, name, password string) {
	t.Helper()
	var all []kadm.UpsertSCRAM
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		all = append(all, kadm.UpsertSCRAM{User: name, Mechanism: mechanism, Iterations: 4096, Password: password})
	}
	for _, one := range all {
		altered, err := administrator(t, opts).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{one})
		for _, a := range altered {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			t.Fatal(fmt.Errorf("add user %s: %w", name, err))
		}
	}
}

func administrator(t testing.TB, opts []kgo.Opt) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}
