//go:build profile

package main

import (
	"os"
	"runtime/pprof"
)

// profile writes a CPU profile to the file that CPUPROFILE names, until stop. It is for `bench -profile`.
func profile() (stop func()) {
	name := os.Getenv("CPUPROFILE")
	if name == "" {
		return func() {}
	}
	file, err := os.Create(name)
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		panic(err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}
}
