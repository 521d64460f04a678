# Everything on a fresh clone, with Python 3.11 or later, a C compiler and Rust:
#
#     make demo       set up, build, and show the product at work
#     make test       set up, build, and run all tests
#
# What is installed goes into .venv; stamps in it keep repeated calls quick.

PYTHON ?= python3
inputs ?= 1000000

venv := .venv
bin := $(venv)/bin
tools := $(venv)/.tools-ready
dev := $(venv)/.dev-ready
extension := $(venv)/.extension-ready
adapters := .venv-adapters
names := langgraph mcp mem0 openai_agents postgres
rooms := $(names:%=$(adapters)/%/.ready)
rust_sources := $(shell find rust -name target -prune -o -type f -print) Cargo.toml $(wildcard Cargo.lock)

export VIRTUAL_ENV := $(CURDIR)/$(venv)
export PYO3_PYTHON := $(VIRTUAL_ENV)/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-adapters soak fuzz check format wheel bench branchbench clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

demo: $(extension)  ## set up, build, and show the product at work
	@$(bin)/branchmem demo

test: $(dev) $(extension)  ## set up, build, and run all tests
	cargo test --package branchmem-core --package branchmem-search --package branchmem-bench --package branchmem-fuzz --quiet
	cargo build --release --package branchmem-bench --quiet
	cargo run --release --quiet --package branchmem-fuzz -- --inputs 100000
	$(bin)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

# Each adapter is tried with its extra and no other, on the wheel.
test-adapters: $(tools) $(extension) $(rooms)  ## set up, build, and test each adapter in an environment of its own
	rm -rf $(adapters)/wheel
	$(bin)/maturin build --release --quiet --out $(adapters)/wheel
	@set -e; for name in $(names); do \
	echo "adapter: $$name"; \
	$(bin)/python -m pip --python $(adapters)/$$name install --quiet --force-reinstall --no-deps $(adapters)/wheel/*.whl; \
	$(bin)/python -m pip --python $(adapters)/$$name install --quiet "$$(echo $(adapters)/wheel/*.whl)[$$name]"; \
	$(adapters)/$$name/bin/python -m pytest tests/adapters/$$name; \
	done

soak: $(dev) $(extension)  ## the figures of a release: kills, damage, millions of events; an hour or more
	$(bin)/python -m pytest --soak -m soak

fuzz: $(dev) $(extension)  ## a million hostile blocks for both readers of skeletons; inputs=N for more
	cargo run --release --quiet --package branchmem-fuzz -- --inputs $(inputs)
	$(bin)/python tests/fuzz.py --inputs $(inputs)

check: $(dev) $(extension)  ## formatting, lints, types, the import table
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	$(bin)/python -m pytest tests/test_architecture.py

format: $(dev)  ## put Python and Rust into the form that check wants
	$(bin)/ruff format .
	$(bin)/ruff check --fix .
	cargo fmt --all

# The wheel is tried where nothing of this clone and no Rust can be found.
wheel: $(tools)  ## build the abi3 wheel into dist/ and try it in an environment of its own
	rm -rf dist
	$(bin)/maturin build --release --out dist
	@room=$$(mktemp -d) && trap 'rm -rf "$$room"' EXIT \
	&& $(bin)/python -m venv "$$room/venv" \
	&& "$$room/venv/bin/python" -m pip install --quiet "$(CURDIR)"/dist/*.whl \
	&& ( cd "$$room" && PATH="$$room/venv/bin" && branchmem --version \
	&& branchmem selftest --trees 20 && branchmem demo >demo.txt ) \
	&& echo "the wheel runs without Rust"

bench: $(dev) $(extension)  ## the comparison with other ways to do the same work
	$(bin)/python -m bench.compare

branchbench: $(dev) $(extension)  ## does memory leak across branches: every method that needs no language model
	$(bin)/branchmem bench

clean:  ## remove what make made
	rm -rf $(venv) $(adapters) dist target .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	rm -f python/branchmem/_core*.so
	find python tests bench -name __pycache__ -prune -exec rm -rf {} +

$(tools): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "make: $(PYTHON) is older than Python 3.11: name another with PYTHON=" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "make: cargo is not in PATH: install Rust" >&2; exit 1; }
	@test -x $(bin)/pip || $(PYTHON) -m venv --clear $(venv) \
	|| { echo "make: $(PYTHON) cannot make a venv: on Debian, install python3-venv" >&2; exit 1; }
	$(bin)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(bin)/python -m pip install --quiet --group build
	@touch $@

$(dev): $(tools)
	$(bin)/python -m pip install --quiet --group all
	@touch $@

$(adapters)/%/.ready: $(tools)
	$(PYTHON) -m venv --clear --without-pip $(adapters)/$*
	$(bin)/python -m pip --python $(adapters)/$* install --quiet --group adapter-$*
	@touch $@

$(extension): $(tools) $(rust_sources) pyproject.toml
	$(bin)/maturin develop --release
	@touch $@
