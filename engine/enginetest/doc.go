// Package enginetest is the test bench of the engine: brokers, faults, fixtures, readers, and what a kill test compares.
//
// # Which broker
//
//   - NewFake: in the process, in milliseconds, with faults. The default of a test.
//   - StartFakeProcess: the same broker in a process of its own, for tests that kill the engine and for measurements.
//   - Kafka: a real one, shared by the tests of a binary. OwnKafka: a real one to kill.
//
// All of them are reached by kgo options: Fake.Opts, or At(address).
//
// # The fake clock
//
// A test inside a testing/synctest bubble has a clock that jumps ahead whenever everybody waits, so session timeouts,
// back-offs and intervals cost nothing and cannot flake:
//
//	synctest.Test(t, func(t *testing.T) {
//		f := enginetest.NewFake(t, enginetest.FakeConfig{Network: enginetest.Virtual})
//		// every client in the bubble: kgo.Dialer(f.Dial), which f.Opts() contains
//	})
//
// Transactions, TxnOffsetCommit with group metadata, consumer groups, fencing, session timeouts and all faults here work in
// it, without build tags. What has to hold:
//
//  1. The broker and every client are made inside the bubble, and use the Virtual network: a goroutine that waits on a real
//     socket counts as busy, and the clock stands still.
//  2. Everything that was started ends before the bubble does; helpers that take t register their clean-up with the
//     bubble's own t.
//  3. Real waiting (a file, a subprocess, a lock that is held over a sleep) does not belong into it. Pebble on disk is
//     fine: its calls return, they only take real time.
//  4. The clock begins at 2000-01-01 UTC. Topics with finite retention keep records that carry it.
//
// # Faults
//
// Every fault is installed on a Fake, says which requests it hits (Which), and counts (Fault.Fired). A fault test asserts
// the count.
package enginetest
