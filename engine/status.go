package engine

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
}

// TaskStatus is one task of this instance.
type TaskStatus struct {
	Task  int32
	Phase string // fencing, restoring, running, restarting, stopping
	// Restored and RestoreEnd are changelog offsets while Phase is restoring.
	Restored, RestoreEnd int64
}
