package engine

import (
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Status is what `/readyz` shows: every task that this instance owns, and how far it is.
type Status struct {
	Ready  bool // every stage has joined its group, and every owned task runs
	Stages []StageStatus
}

// StageStatus is one stage of this instance.
type StageStatus struct {
	Pipeline, Stage string
	Kind            string // transformer or extractor
	Joined          bool   // has had its first assignment, which may be empty
	Tasks           []TaskStatus
	// Polled is how many configs of an extractor this instance polls, and Configs are those of them that are in trouble.
	Polled  int
	Configs []ConfigStatus
	// Session is how the session of a push source stands; nil for all other stages. Such a stage has joined when the session
	// has subscribed, and one task, which is the instance.
	Session *stream.SessionStatus
}

// ConfigState is how the polling of a config stands.
type ConfigState string

// The states of a config that are not ok.
const (
	ConfigBackingOff ConfigState = "backing off" // on_error: retry; it is tried again after a pause
	ConfigFailed     ConfigState = "failed"      // on_error: skip; it is polled again when it is due
)

// ConfigStatus is one config in trouble.
type ConfigStatus struct {
	Config   string
	State    ConfigState
	Error    string
	Since    time.Time // of the first failure in a row
	Failures int       // in a row
}

// TaskStatus is one task of this instance.
type TaskStatus struct {
	Task  int32
	Phase string // fencing, restoring, running, restarting, stopping
	// Restored and RestoreEnd are changelog offsets while Phase is restoring.
	Restored, RestoreEnd int64
}
