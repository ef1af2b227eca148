# Targets for people; `make help` lists them. Everything that a target needs beyond Go, git and make it installs itself
# (tools/install-deps) when it is missing.

SHELL := /bin/bash -o pipefail
GO ?= go
PREFIX ?= /usr/local
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILDFLAGS := -trimpath -ldflags "-X main.version=$(VERSION)"
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pergola
LINT_VERSION := 2.15.0
NFPM_VERSION := 2.45.0
NFPM := $(CACHE)/nfpm-$(NFPM_VERSION)/nfpm
LINT := $(CACHE)/golangci-lint-$(LINT_VERSION)/golangci-lint

# Tests that touch the kernel run as root. Those of the net and program tiers run in namespaces of their own
# (tools/pen), one package at a time: tests that measure fail beside others. What pens do not keep apart,
# tools/leftovers looks at when all have ended.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),-exec 'sudo -E')
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
IN_PEN := -p 1 -exec $(CURDIR)/tools/pen
LEFTOVERS := $(if $(PERGOLA_TEST_SHARED),,$(SUDO) $(if $(SUDO),-E) bin/leftovers)

# The tiers. PURE packages do no I/O but files and loopback: they run anywhere, under the race detector. A package that
# is in no other tier is in net. i3/server is in two: it has tests of a packet program in the kernel.
PURE := $(addprefix ./,cmd/... \
	$(addprefix control/,agents/... api/... client/... controller/... events/... pki/... rest/... session/... store/...) \
	$(addprefix host/,member/... plan/... reconcile/... routing/... undo/...) \
	$(addprefix host/agent/,drive/... failures/... metrics/... observe/... report/... serve/... waits/...) \
	host/agent/unwalked/answer/... \
	i3/... mapping/... model/... signalling/... tools/...)
PROGRAM := ./datapath/... ./i3/server
E2E := ./test/e2e/...
packages = $(shell $(GO) list $(1) 2>/dev/null)
NET = $(filter-out $(call packages,$(PURE)) $(call packages,$(PROGRAM)) $(call packages,$(E2E)),$(call packages,./...))
SUITE = bin/suite -log build/results

.DEFAULT_GOAL := build

help: ## list the targets
	@sed -n 's/^\([a-z0-9 -]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build bin/pergola, and bin/i3d and bin/i3 for slivers
	@test -e bin/pergola || echo "compiling Pergola and the Go libraries it uses (etcd, ...): takes minutes the first time"
	@CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -o bin/pergola ./cmd/pergola
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/i3d ./cmd/i3

bin/suite: $(wildcard tools/suite/*.go)
	@$(GO) build -o $@ ./tools/suite

demo: build ## bring examples/abilene.graphml up with FRR and OSPF, check it, show it
	@tools/install-deps run
	@$(SUDO) tools/demo

demo-rootless: build ## the same for an ordinary user: no root, no group, nothing changed on the machine
	@[ "$$(id -u)" != 0 ] || tools/install-deps run
	@tools/demo-rootless

demo-program: build ## bring examples/program.yaml up: nodes that forward by packet programs of the slice's own
	@tools/install-deps run
	@command -v clang >/dev/null || tools/install-deps generate
	@$(SUDO) tools/demo-program

demo-routelet: build ## bring examples/routelet.yaml up: a flow with reserved bandwidth beside a flood
	@tools/install-deps run
	@$(SUDO) tools/demo-routelet

generate: ## rebuild what is generated and committed: eBPF objects, JSON Schema, OpenAPI, documentation of commands
	@tools/install-deps generate
	@$(GO) generate ./...

complexity: ## renew datapath/testdata/complexity.json: each program's cost to the verifier, here and on Debian's kernel
	@PERGOLA_UPDATE=yes $(GO) test -count=1 $(AS_ROOT) ./datapath -run '^TestVerifierComplexityStaysWithinBudget$$'
	@PERGOLA_UPDATE=yes test/vm/run TestVerifierComplexityStaysWithinBudget >/dev/null

lint: $(LINT) ## run golangci-lint with the fences of .golangci.yml
	@$(LINT) run ./...

fmt: $(LINT) ## format all Go files as the linter wants them
	@$(LINT) fmt ./...

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION) (once)"
	@GOBIN=$(dir $@) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT_VERSION)

bin/leftovers: FORCE
	@$(GO) build -o $@ ./tools/leftovers

# Lanes run side by side; the tiers of a lane run one after the other. What uses processors all the time has a lower
# priority; the others mostly wait. More lanes than these overload two cores, and tests that measure or have deadlines
# fail. The linter vets all packages, so go test does not.
LANES := lane-net lane-machine lane-vm
LIMIT = -timeout 40m

SIDE_BY_SIDE = rm -rf build/results; $(LEFTOVERS) $(MAKE) -s -k --no-print-directory \
	-j $(words $(LANES)) --output-sync=target $(LANES)

test: build bin/suite bin/leftovers ## run every tier: unit, program, net, e2e, cluster, vm
	@tools/install-deps run generate test vm
	@$(SIDE_BY_SIDE); status=$$?; bin/suite -sum build/results && exit $$status

check: build bin/suite bin/leftovers $(LINT) ## run every tier and the linter, without the sum of the results
	@tools/install-deps run generate test vm
	@$(SIDE_BY_SIDE) LAST=lint

# $(call each,TARGETS): makes all of them, one after the other, and fails if one failed.
each = status=0; for target in $(1); do $(MAKE) $$target || status=1; done; exit $$status

lane-net:
	+@$(call each,test-net test-program $(if $(LAST),lane-last))
lane-machine:
	+@$(call each,test-e2e test-cluster lane-unit)
lane-unit:
	+@renice -n 10 -p $$$$ >/dev/null; $(MAKE) test-unit
lane-last:
	+@renice -n 10 -p $$$$ >/dev/null; $(MAKE) $(LAST)
lane-vm:
	+@renice -n 5 -p $$$$ >/dev/null; $(MAKE) test-vm

test-unit: bin/suite ## pure Go, under the race detector
	@tools/install-deps test
	@$(SUITE) unit $(GO) test -vet=off -json -race $(PURE)
	@$(SUITE) unit-loop $(GO) test -vet=off -json -race -run '^TestLoop' ./host/agent

test-program: bin/suite bin/leftovers ## eBPF programs, frame in and frame out
	@tools/install-deps run test
	@$(SUITE) program $(LEFTOVERS) $(GO) test -vet=off -json -count=1 $(LIMIT) $(IN_PEN) $(PROGRAM)

test-net: bin/suite bin/leftovers ## namespaces, containers, routing daemons, traffic
	@tools/install-deps run test
	@$(SUITE) net $(LEFTOVERS) $(GO) test -vet=off -json -count=1 $(LIMIT) $(IN_PEN) $(NET)

test-e2e: build bin/suite ## stories with the real binary
	@tools/install-deps run test
	@PERGOLA=$(CURDIR)/bin/pergola $(SUITE) e2e $(GO) test -vet=off -json -count=1 $(LIMIT) -skip '^TestCluster$$' $(AS_ROOT) $(E2E)

test-cluster: build bin/suite ## stories of several machines, made of namespaces
	@tools/install-deps run test
	@PERGOLA=$(CURDIR)/bin/pergola \
		$(SUITE) cluster $(GO) test -vet=off -json -count=1 $(LIMIT) -run '^TestCluster$$' $(AS_ROOT) $(E2E)

test-vm: build bin/suite ## the tests of test/vm/tests.txt on Debian's stock kernel, emulated
	@tools/install-deps run test vm
	@$(SUITE) vm test/vm/run

test-root: test-program test-net test-e2e test-cluster ## the tiers that need root

FUZZTIME ?= 30s
fuzz: ## run every fuzz target for FUZZTIME
	@tools/fuzz $(FUZZTIME)

bench: build ## measure for an hour and a quarter, and write docs/benchmarks.md
	@tools/install-deps run bench
	@$(GO) build -o bin/bench ./bench
	@$(GO) test -c -o bin/ ./datapath ./datapath/fib ./datapath/mirror ./signalling/rsvp
	@$(SUDO) bin/bench -out docs/benchmarks.md

SOAKTIME ?= 10m
soak: build ## stories in random order and with kill -9, for SOAKTIME
	@tools/install-deps run test
	@PERGOLA=$(CURDIR)/bin/pergola PERGOLA_SOAK=$(SOAKTIME) \
		$(GO) test -count=1 -timeout 0 -v -run '^Test(Soak|Mutations)$$' $(AS_ROOT) ./test/e2e
	@$(GO) test -count=1 -timeout 0 -v -run '^TestFastPathAgreesWithKernels$$' $(AS_ROOT) ./test/differential -long

man: ## make the manual pages, in build/man
	@mkdir -p build/man
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) test -count=1 -run '^TestManualPages$$' ./cmd/pergola -man $(CURDIR)/build/man >/dev/null

# As root by sudo there may be no Go in the PATH: then what was built before is installed.
install: $(if $(shell command -v $(GO)),build man) ## install below PREFIX: binaries, systemd unit, manual, completions
	@$(SUDO) tools/install $(PREFIX)

uninstall: ## remove what `make install` installed below PREFIX
	@$(SUDO) tools/install --remove $(PREFIX)

$(NFPM):
	@echo "building nfpm $(NFPM_VERSION) (once)"
	@GOBIN=$(dir $@) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@v$(NFPM_VERSION)

dist: build man $(NFPM) ## make packages, tarballs and their checksums, in dist
	@NFPM=$(NFPM) tools/dist $(VERSION)

image: build man $(NFPM) ## make all that dist makes, and a container image
	@tools/install-deps image
	@NFPM=$(NFPM) tools/dist --image $(VERSION)

test-dist: image ## install the packages on bare Debian systems, and bring a network up there
	@tools/install-deps dist
	@$(SUDO) test/dist/run

clean: ## remove what was built here; caches in ~/.cache/pergola stay
	@rm -rf bin build dist

FORCE:
.PHONY: FORCE complexity help build demo demo-rootless demo-program demo-routelet generate lint fmt test check \
	$(LANES) lane-unit lane-last test-unit test-program test-net test-e2e test-cluster test-root test-vm fuzz \
	bench soak install uninstall man dist image test-dist clean
