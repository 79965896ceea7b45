// Package enginetest is the test bench of the engine: brokers, faults, fixtures, readers, and what a kill test compares.
package enginetest
