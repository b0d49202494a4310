# Every target does its own set-up: Python 3.11, git and make are all that a machine needs.
SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help setup slurm reproduce reference test test-slurm check replay bless chaos fuzz mutants bench bench-peers picture lock clean

PYTHON ?=
# The build of PyTorch: that of the lock, with CUDA, or with TORCH=cpu the one without, in the same
# versions; uv knows where that lies. It is not in the lock, so nothing is checked by hash then.
TORCH ?=
UV := .tools/bin/uv
SITE := reports/site/index.html
PLUGIN := scripts/slurm-requirements.txt

# The tools of .venv come first, so that the workflow's jobs find `fedrepro`; the pip of .tools comes
# last, to fetch data where there is no other. One thread per process: jobs run side by side, and a
# second thread each would only make them wait.
export PATH := $(CURDIR)/.venv/bin:$(PATH):$(CURDIR)/.tools/bin
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

help: ## this list
	@awk -F ' *## *' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: .venv/package.stamp ## make .venv from requirements.lock (the other targets do it when needed)

slurm: setup ## add Snakemake's plug-in for SLURM to .venv (docs/cluster.md)
	@$(UV) pip install -q --python .venv/bin/python --no-deps --require-hashes -r $(PLUGIN)

reproduce: setup ## run the whole workflow at the configured scale and say where the site is
	@snakemake --cores all
	@python scripts/where.py $(SITE)

reference: setup ## compute what reports/papers/reference.yaml lists and is missing: hours, one core
	@python scripts/reference.py --cores $(or $(CORES),1)
	@python scripts/render_reference.py

test: setup ## all tests, on two cores
	@scripts/chromium
	@pytest -n 2 --dist worksteal

# The plug-in goes apart: every start of Snakemake in the other tests would pay for it.
test-slurm: setup .tools/slurm.stamp ## the profile for SLURM, against a real one on this machine
	@scripts/slurm
	@PYTHONPATH=$(CURDIR)/.tools/slurm pytest -q -n 3 --dist worksteal tests/slurm

check: setup ## formatting, lint, types and workflow lint, then all tests
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint
	@$(MAKE) --no-print-directory test

chaos: setup ## kill, damage, fill and move things in a small reproduction, for some minutes (root)
	@python tests/chaos/run.py

fuzz: setup ## the fuzzers with random examples, for about 10 minutes on one core (in tests: few, fixed)
	@FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-20} pytest tests/fuzz

mutants: setup ## seed single bugs, see which the tests notice (30 minutes); writes docs/mutants.md
	@python scripts/mutants.py --report docs/mutants.md

replay: setup ## play the first rounds of the reference results with today's code, and note which agree
	@python scripts/replay.py

bless: setup ## show that changed code gives the same numbers, bit by bit; writes run/numerics.json
	@python scripts/bless.py

bench: setup ## measure the engine against a bare PyTorch loop; writes docs/benchmarks.md
	@pytest tests/benchmarks -p benchmark -p no:xdist
	@python scripts/render_benchmarks.py

bench-peers: setup ## measure other simulators beside the engine, in environments that it removes again
	@TORCH=$(TORCH) python tests/benchmarks/peers/measure.py
	@python scripts/render_benchmarks.py

picture: setup ## make the README's picture again, from a page of reference results (needs chromium)
	@python scripts/picture.py

lock: .tools/uv.stamp ## write requirements.lock again after a change in pyproject.toml
	$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--python-version 3.11 --group dev pyproject.toml -o requirements.lock

clean: ## remove the environment and all caches; results and the site stay
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .peers .chaos .mutants.jsonl
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so a step that was broken off is done again.
.tools/uv.stamp: scripts/uv-requirements.txt
	@python=$$(scripts/find-python "$(PYTHON)") && rm -rf .tools && scripts/make-tools "$$python"
	@touch $@

.tools/slurm.stamp: $(PLUGIN) .venv/packages.stamp
	@rm -rf .tools/slurm
	@$(UV) pip install -q --python .venv/bin/python --target .tools/slurm --no-deps --require-hashes \
		-r $(PLUGIN)
	@touch $@

# Compiled once, for 20 s: where Python may not write bytecode (PYTHONDONTWRITEBYTECODE, as in many
# containers), every process would else spend 2 s on PyTorch's sources.
.venv/packages.stamp: requirements.lock .tools/uv.stamp
	@echo "Setting up .venv (on Linux the first time fetches 2.7 GB, most of it PyTorch)"
	@python=$$(scripts/find-python "$(PYTHON)") && \
		{ test -x .venv/bin/python || $(UV) venv -q --python "$$python" .venv; }
ifeq ($(TORCH),)
	@$(UV) pip sync --compile-bytecode --require-hashes --python .venv/bin/python requirements.lock
else
	@$(UV) pip install -q --compile-bytecode --python .venv/bin/python --torch-backend $(TORCH) \
		-c requirements.lock -r pyproject.toml --group dev
endif
	@touch $@

.venv/package.stamp: pyproject.toml .venv/packages.stamp
	@$(UV) pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e .
	@touch $@
