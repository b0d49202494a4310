# Every target sets up what it needs: a machine only has to have Python 3.11 to 3.14, git, make and g++.
SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help setup slurm reproduce reference compact test test-slurm check lint replay bless pythons chaos fuzz mutants bench bench-peers paper picture site examples docs lock clean

PYTHON ?=
# The build of PyTorch: by default the locked one, with CUDA. TORCH=cpu selects the CPU build of the
# same versions, which uv knows where to find. It is not in the lock, so files are not checked by hash.
TORCH ?=
UV := .tools/bin/uv
SITE := reports/site/index.html
PLUGIN := scripts/slurm-requirements.txt
DOCS := scripts/docs-requirements.txt

# .venv comes first, so that the workflow's jobs find `fedrepro`. .tools comes last: its pip fetches
# data if there is no other pip. One thread per process: jobs run in parallel, and a second thread
# each would only make them wait for each other.
export PATH := $(CURDIR)/.venv/bin:$(PATH):$(CURDIR)/.tools/bin
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# Containers often forbid bytecode. Every pytest process would then rewrite all tests for 10 s.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this list
	@awk -F ' *## *' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: .venv/package.stamp ## create .venv from requirements.lock (the other targets do it when needed)

slurm: setup ## add Snakemake's plug-in for SLURM to .venv (docs/cluster.md)
	@$(UV) pip install -q --python .venv/bin/python --no-deps --require-hashes -r $(PLUGIN)

reproduce: setup ## run the whole workflow at the configured scale and print where the site is
	@snakemake --cores all
	@python scripts/where.py $(SITE)

reference: setup ## compute the missing runs of reports/papers/reference.yaml: hours on one core
	@python scripts/reference.py --cores $(or $(CORES),1)
	@python scripts/render_reference.py

compact: setup ## compute the missing runs of scale compact: a weekend; ONLY='fedgo/*' for a part, AGAIN=1 to compare; IN=examples/NAME
	@cd $(or $(IN),.) && python $(CURDIR)/scripts/reference.py --cores $(or $(CORES),all) --compact $(if $(ONLY),'$(ONLY)') $(if $(AGAIN),--again)

test: setup ## run all tests, on two cores
	@scripts/chromium
	@pytest -n 3 --dist worksteal # a third process while one waits for Snakemake, Chromium or a server

# The plug-in is installed separately: it slows down every start of Snakemake, also in other tests.
test-slurm: setup .tools/slurm.stamp ## test the SLURM profile against a real SLURM on this machine
	@scripts/slurm
	@PYTHONPATH=$(CURDIR)/.tools/slurm pytest -q -n 3 --dist worksteal tests/slurm

# mypy takes most of a minute without its cache, on one core.
check: setup ## check formatting, lint, types and the workflow, and run all tests
	@scripts/beside '$(MAKE) --no-print-directory lint' '$(MAKE) --no-print-directory test'

lint: setup ## check formatting, lint, types and the workflow
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

chaos: setup ## kill processes, damage files and fill the disk in a small reproduction: minutes (root)
	@python tests/chaos/run.py

fuzz: setup ## run the fuzzers with random examples: about 10 minutes on one core (tests use few, fixed ones)
	@FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-20} pytest tests/fuzz

mutants: setup ## seed single bugs and count how many the tests notice (an hour); writes docs/mutants.md; SEED=N resumes; HAND=1: those of a list
	@python $(if $(HAND),scripts/mutants_by_hand.py,scripts/mutants.py --report docs/mutants.md $(if $(SEED),--seed $(SEED)))

replay: setup ## compare the code that made each reference result with today's, bit by bit
	@python scripts/replay.py

bless: setup ## show that changed code gives the same numbers, bit by bit; writes provenance/numerics.json
	@python scripts/bless.py

pythons: ## compare every bit of the golden micro-runs under the Pythons of this machine
	@TORCH=$(TORCH) scripts/pythons

bench: setup ## measure the engine against a bare PyTorch loop; writes docs/benchmarks.md
	@pytest tests/benchmarks -p benchmark -p no:xdist
	@python scripts/render_benchmarks.py

bench-peers: setup ## measure other simulators on the same workloads, in temporary environments
	@TORCH=$(TORCH) python tests/benchmarks/peers/measure.py
	@python scripts/render_benchmarks.py

paper: setup ## predict what runs take on the GPU of scripts/h100.yaml, after a change of its numbers
	@python scripts/measure_rates.py h100

picture: setup ## render the README's picture, claims with their evidence (needs chromium)
	@python scripts/picture.py

site: setup ## render the site of committed results in .site: under a minute, without training
	@python scripts/whole_site.py

examples: setup ## render the sites of examples/ in .examples, from committed results
	@python scripts/whole_site.py $(wildcard examples/*/)

docs: setup .tools/docs.stamp ## build the documentation as a site (.docs/site)
	@python scripts/docs.py

lock: .tools/uv.stamp ## update requirements.lock after a change in pyproject.toml
	$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--python-version 3.11 --group dev pyproject.toml -o requirements.lock

clean: ## remove the environment and all caches; results and the site stay
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .peers .chaos .docs .site .examples .pythons .mutants.jsonl .mutants_by_hand.jsonl
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an interrupted step is repeated.
.tools/uv.stamp: scripts/uv-requirements.txt
	@python=$$(scripts/find-python "$(PYTHON)") && rm -rf .tools && scripts/make-tools "$$python"
	@touch $@

.tools/slurm.stamp: $(PLUGIN) .venv/packages.stamp
	@rm -rf .tools/slurm
	@$(UV) pip install -q --python .venv/bin/python --target .tools/slurm --no-deps --require-hashes \
		-r $(PLUGIN)
	@touch $@

.tools/docs.stamp: $(DOCS) .tools/uv.stamp
	@$(UV) venv -q --clear .tools/docs
	@$(UV) pip sync -q --require-hashes --python .tools/docs/bin/python $(DOCS)
	@touch $@

# Bytecode is compiled here once, in 20 s. Where Python may not write bytecode
# (PYTHONDONTWRITEBYTECODE, as in many containers), every process would otherwise spend 2 s on
# compiling PyTorch's sources.
.venv/packages.stamp: requirements.lock .tools/uv.stamp
	@echo "Setting up .venv (on Linux the first call downloads 3.3 GB, most of it PyTorch and CUDA)"
	@python=$$(scripts/find-python "$(PYTHON)") && \
		{ test -x .venv/bin/python || $(UV) venv -q --python "$$python" .venv; }
ifeq ($(TORCH),)
	@$(UV) pip sync --compile-bytecode --require-hashes --python .venv/bin/python requirements.lock
else
	@$(UV) pip install -q --compile-bytecode --python .venv/bin/python --torch-backend $(TORCH) \
		-c requirements.lock -r pyproject.toml --group dev || { \
		echo "TORCH=$(TORCH) needs PyTorch's own index of such builds: if it can't be reached (see above)," \
			"make setup without TORCH installs the locked builds, which also run on a CPU"; exit 2; }
endif
	@touch $@

.venv/package.stamp: pyproject.toml .venv/packages.stamp
	@$(UV) pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e .
	@touch $@
