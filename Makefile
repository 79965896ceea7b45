# Every target is a command that you could type; `make` alone lists them.

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
LINT     := go run $(GOLANGCI)

# What runs on a real Kafka or on mosquitto, and the benchmarks of single rooms.
REAL  := ./engine/... ./cmd/... ./connectors/...
ROOMS := ./connectors/http/... ./script/... ./engine/decode/... ./engine/expr/... ./engine/pipeline/... ./engine/rawjson/... ./store/...

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
PGO     := -pgo=$(CURDIR)/cmd/flechtwerk/cpu.pgo
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# In the image only what records pass through is inlined: three megabytes less. For script the profile of PGO makes up for it, and expr is
# made of closures, which are not inlined anyway.
FAST  := runtime/... internal/runtime/... internal/bytealg internal/abi sync/... strconv unicode/utf8 bytes slices math math/bits encoding/binary \
         github.com/twmb/franz-go/pkg/kgo github.com/twmb/franz-go/pkg/kbin github.com/dop251/goja github.com/dop251/goja/unistring \
         $(addprefix github.com/flechtwerk/flechtwerk/,engine engine/stream engine/rawjson store)
SMALL := -gcflags=all=-l $(foreach p,$(FAST),-gcflags=$(p)=)

IMAGE   := flechtwerk
BUILDAH := buildah --storage-driver vfs
CERTS   := /etc/ssl/certs/ca-certificates.crt

.DEFAULT_GOAL := help
.PHONY: help build test race lint arrows conformance record bench profile integration image-root image image-test clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## bin/flechtwerk
	go build -trimpath $(PGO) -ldflags '$(LDFLAGS)' -o bin/flechtwerk ./cmd/flechtwerk

test: ## the fast tier: Go alone, a Kafka inside the test
	go test ./...

race: ## the fast tier with the race detector, which needs a C compiler
	go test -race -short -timeout 20m ./...

lint: ## all linters of .golangci.yml
	$(LINT) run ./...

arrows: ## that the import rules of .golangci.yml bite
	LINT='$(LINT)' .ci/lint-bites

conformance: ## that scripts give what Node gives: the recordings in Node 20, then all of them here
	node script/testdata/conformance/record.mjs --check
	go test -count=1 -run TestRecordedInNode ./script

record: ## what Node 20 gives for the scripts of the conformance suite, written into its files
	node script/testdata/conformance/record.mjs

bench: ## rooms alone, then whole pipelines beside a franz-go pass-through, on a real Kafka where there is Java
	go test -run '^$$' -bench . -benchmem $(ROOMS)
	go run ./engine/enginetest/bench

profile: ## cmd/flechtwerk/cpu.pgo: where the compiler is to take pains, measured by the benchmarks
	go run ./engine/enginetest/bench -only B1,B2,B3 -runs 1 -records 2000000 -profile bin/profile
	go tool pprof -proto -output cmd/flechtwerk/cpu.pgo bin/profile/B1.pprof bin/profile/B2.pprof bin/profile/B3.pprof

integration: ## the real tier: the tests again on an Apache Kafka and a mosquitto that they start; needs Java 17, Maven, mosquitto
	FLECHTWERK_TIER=kafka go test -count=1 -p 1 -timeout 30m $(REAL)

image-root: ## bin/image: the files of the image
	rm -rf bin/image
	mkdir -p bin/image/etc/ssl/certs bin/image/pipelines bin/image/state
	CGO_ENABLED=0 go build -trimpath -tags timetzdata $(PGO) $(SMALL) -ldflags '$(LDFLAGS)' -o bin/image/flechtwerk ./cmd/flechtwerk
	cp $(CERTS) bin/image/etc/ssl/certs/

image: image-root ## the image, from bin/image and nothing from a registry; needs buildah
	$(BUILDAH) build --isolation chroot --build-context build=. --tag $(IMAGE) .

image-test: ## that the image holds what it should and runs; skipped without buildah
	BUILDAH='$(BUILDAH)' .ci/image-test

clean: ## what these targets have made
	rm -rf bin
