# What people do with this tree. Each task installs what it lacks (.ci/install) and says nothing when all is there.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The Python of the driver tests, with psycopg and asyncpg in it.
export PGMUX_TEST_PYTHON := $(abspath $(TARGET))/drivers/venv/bin/python
# The programs of PostgreSQL 18, the second version that the tests run on.
export PGMUX_TEST_POSTGRES18 := $(abspath $(TARGET))/postgres18/bin
ARGS ?=
FUZZ_SECONDS ?= 30
SOAK_SECONDS ?= 600
CHAOS_SECONDS ?= 600

.PHONY: help demo test soak chaos check format lint docs bench fuzz-smoke install

help:
	@echo 'make demo        try pgmux in front of a throwaway PostgreSQL (ARGS="--seconds 10")'
	@echo 'make test        run every test, end to end included'
	@echo 'make chaos       break servers, the network and the configuration under 32 clients for CHAOS_SECONDS=$(CHAOS_SECONDS) (CHAOS_SEED=n repeats a run)'
	@echo 'make soak        let 64 clients work at random for SOAK_SECONDS=$(SOAK_SECONDS) (SOAK_SEED=n repeats a run)'
	@echo 'make check       formatting, lints and documentation, warnings are errors'
	@echo 'make bench       measure against PgBouncer and PostgreSQL itself (ARGS="--help")'
	@echo 'make fuzz-smoke  run each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make install     install what the tests need, and nothing else'

demo:
	@.ci/install build postgres
	$(CARGO) build --release --locked -p engine --bin pgmux
	$(TARGET)/release/pgmux demo $(ARGS)

install:
	@.ci/install build postgres postgres18 drivers

# Tests that meet PostgreSQL's own habits, run once more on its second version. The scripts run on both by themselves.
ON_POSTGRES_18 := e2e leaving cancel pool startup protocol

# The binary first: the end-to-end tests run it, and must not each build it.
test: install
	$(CARGO) build --locked -p engine --bin pgmux
	$(CARGO) test --locked --workspace --no-fail-fast $(ARGS)
ifeq ($(ARGS),)
	PGMUX_TEST_POSTGRES=18 $(CARGO) test --locked -p tests --no-fail-fast $(addprefix --test ,$(ON_POSTGRES_18))
	PGMUX_TEST_POSTGRES=18 $(CARGO) test --locked -p tests --no-fail-fast --test drivers on_4_shards_by_tls
endif

# Two minutes of it, with the same choices each time, are part of `make test`.
soak:
	@.ci/install build postgres
	$(CARGO) build --locked -p engine --bin pgmux
	SOAK_SECONDS=$(SOAK_SECONDS) SOAK_SEED=$${SOAK_SEED:-$$(date +%s)} $(CARGO) test --locked -p tests --test soak -- --nocapture

chaos:
	@.ci/install build postgres
	$(CARGO) build --locked -p engine --bin pgmux
	CHAOS_SECONDS=$(CHAOS_SECONDS) CHAOS_SEED=$${CHAOS_SEED:-$$(date +%s)} $(CARGO) test --locked -p tests --test chaos -- --nocapture

check: format lint docs

format:
	$(CARGO) fmt --all --check

lint:
	@.ci/install build
	$(CARGO) lint

docs:
	@.ci/install build
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --document-private-items

bench:
	@.ci/install build postgres pgbouncer
	$(CARGO) build --release --locked -p engine --bin pgmux
	$(CARGO) run --release --locked -p bench -- $(ARGS)

fuzz-smoke:
	@.ci/install build fuzz
	@set -e; for target in $$($(CARGO) fuzz list --fuzz-dir protocol/fuzz); do \
		echo "== $$target"; \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --fuzz-dir protocol/fuzz $$target -- -max_total_time=$(FUZZ_SECONDS); \
	done
