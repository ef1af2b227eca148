# Targets for people; `make help` lists them. Everything that a target needs beyond Go, git and make it installs itself
# (tools/install-deps) when it is missing.

SHELL := /bin/bash -o pipefail
GO ?= go
PREFIX ?= /usr/local
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILDFLAGS := -trimpath -ldflags "-X main.version=$(VERSION)"
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pergola
LINT_VERSION := 2.15.0
LINT := $(CACHE)/golangci-lint-$(LINT_VERSION)/golangci-lint

# Tests that touch the kernel run as root, one package after the other: they look for leaks on the whole machine.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),-exec 'sudo -E')
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)

# The tiers. PURE packages do no I/O but files: they run anywhere, under the race detector. What is in no other tier is in net.
PURE := $(addprefix ./,cmd/... control/api/... control/client/... control/controller/... control/events/... control/pki/... control/rest/... control/store/... host/plan/... host/reconcile/... host/routing/... host/undo/... model/... tools/...)
PROGRAM := ./datapath/...
E2E := ./test/e2e/...
packages = $(shell $(GO) list $(1) 2>/dev/null)
NET = $(filter-out $(call packages,$(PURE)) $(call packages,$(PROGRAM)) $(call packages,$(E2E)),$(call packages,./...))
SUITE = bin/suite -log build/results

.DEFAULT_GOAL := build

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build bin/pergola
	@CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -o bin/pergola ./cmd/pergola

bin/suite: $(wildcard tools/suite/*.go)
	@$(GO) build -o $@ ./tools/suite

demo: build ## bring examples/abilene.graphml up with FRR and OSPF, check it, show it
	@tools/install-deps run
	@$(SUDO) tools/demo

generate: ## rebuild what is generated and committed: eBPF objects, JSON Schema, OpenAPI, documentation of commands
	@tools/install-deps generate
	@$(GO) generate ./...

lint: $(LINT) ## run golangci-lint with the fences of .golangci.yml
	@$(LINT) run ./...

fmt: $(LINT) ## format all Go files as the linter wants them
	@$(LINT) fmt ./...

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION) (once)"
	@GOBIN=$(dir $@) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT_VERSION)

test: ## run every tier, the cheap ones first: unit, program, net, e2e, cluster, vm
	@tools/install-deps run generate test vm
	@rm -rf build/results
	@failed=; for tier in unit program net e2e cluster vm; do $(MAKE) -s --no-print-directory test-$$tier || failed="$$failed $$tier"; done; \
	bin/suite -sum build/results; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

test-unit: bin/suite ## pure Go, under the race detector
	@tools/install-deps test
	@$(SUITE) unit $(GO) test -json -race $(PURE)

test-program: bin/suite ## eBPF programs, frame in and frame out
	@tools/install-deps run test
	@$(SUITE) program $(GO) test -json -count=1 -p 1 $(AS_ROOT) $(PROGRAM)

test-net: bin/suite ## namespaces, containers, routing daemons, traffic
	@tools/install-deps run test
	@$(SUITE) net $(GO) test -json -count=1 -p 1 -timeout 10m $(AS_ROOT) $(NET)

test-e2e: build bin/suite ## stories with the real binary
	@tools/install-deps run test
	@PERGOLA=$(CURDIR)/bin/pergola $(SUITE) e2e $(GO) test -json -count=1 -timeout 10m -skip '^TestCluster$$' $(AS_ROOT) $(E2E)

test-cluster: build bin/suite ## stories of several machines, made of namespaces
	@tools/install-deps run test
	@PERGOLA=$(CURDIR)/bin/pergola $(SUITE) cluster $(GO) test -json -count=1 -timeout 10m -run '^TestCluster$$' $(AS_ROOT) $(E2E)

test-root: test-program test-net test-e2e test-cluster ## the tiers that need root

test-vm: build bin/suite ## the tests of test/vm/tests.txt on Debian's stock kernel, emulated
	@tools/install-deps run test vm
	@$(SUITE) vm test/vm/run

FUZZTIME ?= 30s
fuzz: ## run every fuzz target for FUZZTIME
	@tools/fuzz $(FUZZTIME)

bench: build ## measure for three quarters of an hour, and write docs/benchmarks.md
	@tools/install-deps run bench
	@$(GO) build -o bin/bench ./bench
	@$(GO) test -c -o bin/ ./datapath/fib ./datapath/mirror
	@$(SUDO) bin/bench -out docs/benchmarks.md

SOAKTIME ?= 10m
soak: build ## stories in random order and with kill -9, for SOAKTIME
	@tools/install-deps run test
	@PERGOLA=$(CURDIR)/bin/pergola PERGOLA_SOAK=$(SOAKTIME) $(GO) test -count=1 -timeout 0 -v -run '^Test(Soak|Mutations)$$' $(AS_ROOT) ./test/e2e
	@$(GO) test -count=1 -timeout 0 -v -run '^TestFastPathAgreesWithKernels$$' $(AS_ROOT) ./test/differential -long

install: build ## install the binary, the systemd unit and shell completions below PREFIX
	@$(SUDO) tools/install $(PREFIX)

clean: ## remove what was built here; caches in ~/.cache/pergola stay
	@rm -rf bin build dist

.PHONY: help build demo generate lint fmt test test-unit test-program test-net test-e2e test-cluster test-root test-vm fuzz bench soak install clean
