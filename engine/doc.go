// Package engine runs the stages of pipelines on Kafka, exactly once.
//
// # Outline
//
// A stage is one extractor or transformer. Its consumer group decides which instance runs which of its tasks; a task is one
// partition number of a transformer's inputs, or one token of an extractor. A task has a static transactional id, so that
// whoever runs it next fences whoever ran it before, one Transform or Source, and one partition of the local store, which is
// only a cache of the task's partition of the changelog topic.
//
//	preflight   (preflight.go)             what must be true before any group is joined
//	consumer    (group.go, queue.go)       one group client per stage: assignment, and records into bounded queues
//	task        (task.go)                  the life of one task: fence, offsets, takeover, restore, run, stop
//	restore     (restore.go)               the changelog into the store
//	transformer (transformer.go)           takes records from the queue, decodes them, asks the Transform
//	extractor   (extractor.go, pages.go)   polls side by side, pages committed one after another
//	session     (push.go, arrivals.go)     what comes by itself: neither group nor changelog
//	configs     (configs.go, enrich.go)    what an extractor polls, and how it is completed
//	producer    (producer.go)              one transactional client per task: begin, produce, offsets, end
//
// One record's way: a queue holds it → take, decode, policies → Transform.Run with state from overlay and store → begin →
// produce outputs and one changelog record per changed key → TxnOffsetCommit with the group's metadata → end → one store
// batch with the changes and the checkpoint → events.
//
// # Invariants
//
//	E1 An input offset is committed only in the transaction that holds everything made from it.
//	E2 The store never runs ahead of the committed changelog.
//	E3 A task runs only after fence → stable offset fetch → takeover record → restore, in this order.
//	E4 Any produce error, of any record, aborts the transaction.
//	E5 An unknown outcome is resolved before anything else is sent; never guessed.
//	E6 One transactional id belongs to one task; a transformer's task has one Transform, used by one goroutine.
//	E7 A revoked task's neighbours do not stop.
//	E8 Nothing is unbounded: queues, overlays, bodies and inboxes have byte budgets.
//	E9 Local state is never wiped because of a crash; only because its checkpoint cannot be trusted.
//	E10 A failed record never reaches an output.
//
// There is one way out of every doubt: a task that was fenced, whose transaction was aborted, or whose commit was not
// answered closes its client and starts again at E3. The fence settles the old transaction, the stable offset fetch tells
// whether it committed, and the changelog's tail brings the store to the same point. Nothing is kept from before.
package engine
