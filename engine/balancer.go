package engine

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// copartitioned is the group's assignor: partition number p of all of a stage's topics goes to one member, since it is one
// task (its state, its transactional id). It is sticky, so that local state stays useful, and cooperative: a partition
// moves by being revoked in one rebalance and assigned in the next, while its neighbours go on.
//
// The plan, made by the leader from what members say they own:
//
//  1. A number stays with the member that owned it, as long as that member has no more than its share.
//  2. What is left goes to the members with the least, in the order of their ids.
//  3. Shares differ by at most one.
type copartitioned struct{}

func (copartitioned) ProtocolName() string { return "flechtwerk-copartitioned" }

func (copartitioned) IsCooperative() bool { return true }

func (copartitioned) JoinGroupMetadata(topics []string, owned map[string][]int32, generation int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 3
	meta.Topics = topics
	for topic, partitions := range owned {
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic, o.Partitions = topic, partitions
		meta.OwnedPartitions = append(meta.OwnedPartitions, o)
	}
	slices.SortFunc(meta.OwnedPartitions, func(a, b kmsg.ConsumerMemberMetadataOwnedPartition) int { return cmp.Compare(a.Topic, b.Topic) })
	meta.Generation = generation
	return meta.AppendTo(nil)
}

func (copartitioned) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return kgo.ParseConsumerSyncAssignment(assignment)
}

func (c copartitioned) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(c, members)
	if err != nil {
		return nil, nil, err
	}
	return b, b.MemberTopics(), nil
}

// Balance makes the plan (kgo.ConsumerBalancerBalance).
func (copartitioned) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := b.NewPlan()
	var tasks int32
	for _, n := range topics {
		tasks = max(tasks, n)
	}
	owners := make([]claim, tasks) // who owned each number, by the newest generation
	for i := range owners {
		owners[i] = claim{member: -1, generation: -1}
	}
	var members []*kmsg.JoinGroupResponseMember
	b.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		for _, o := range meta.OwnedPartitions {
			for _, p := range o.Partitions {
				if p >= 0 && p < tasks && meta.Generation > owners[p].generation {
					owners[p] = claim{member: len(members), generation: meta.Generation}
				}
			}
		}
		members = append(members, m)
	})
	for member, numbers := range share(owners, len(members)) {
		for _, p := range numbers {
			for topic, n := range topics {
				if p < n {
					plan.AddPartition(members[member], topic, p)
				}
			}
		}
	}
	plan.AdjustCooperative(b)
	return plan
}

// claim is who owned a number when the rebalance began; member -1 is nobody.
type claim struct {
	member     int
	generation int32
}

// share spreads the numbers over n members and answers those of each.
func share(owners []claim, n int) [][]int32 {
	shares := make([][]int32, n)
	if n == 0 {
		return shares
	}
	least, extra := len(owners)/n, len(owners)%n
	var free []int32
	for p, owner := range owners {
		m := owner.member
		switch {
		case m < 0:
		case len(shares[m]) < least:
			shares[m] = append(shares[m], int32(p))
			continue
		case len(shares[m]) == least && extra > 0:
			extra--
			shares[m] = append(shares[m], int32(p))
			continue
		}
		free = append(free, int32(p))
	}
	for _, p := range free {
		to := 0
		for m := range shares {
			if len(shares[m]) < len(shares[to]) {
				to = m
			}
		}
		shares[to] = append(shares[to], p)
	}
	return shares
}
