# coordinator: run it, test it, measure it. Everything happens in .venv; nothing else is touched.

VENV := .venv
BIN := $(VENV)/bin

# The first Python that is new enough; `make PYTHON=/path/to/python3.12 test` chooses another.
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo "$$candidate"; break; fi; done)
# What the verbs of the command line need: `make run` and containers have it.
EXTRAS := certs,oidc

PIP_OPTIONS := --quiet --disable-pip-version-check --no-input --root-user-action=ignore

.PHONY: help run test compiled-tests fast-suite check lint house bench bench-peers compiled pure wheels \
	simulate mutants faults fuzz clean
.DEFAULT_GOAL := help

help:
	@echo "make run     start three members on this machine, data kept in ./data; Ctrl-C stops them"
	@echo "make test    ruff, mypy --strict and the fast test suite"
	@echo "make check   what takes longer: fifty worlds, stories, real clusters and servers"
	@echo "make lint    ruff and mypy --strict alone"
	@echo "make house   figures of the source: sizes, imports, duplicates, the ways of a write and a lock"
	@echo "make simulate SEEDS=100 START=0   simulated clusters under faults, one for each seed"
	@echo "make mutants [NAMES='...']   plant known bugs in a copy of the code: each must be found"
	@echo "make faults OPTIONS='--rows 1-3'   kill, cut and damage real clusters; root for all of it"
	@echo "make fuzz    bad input of every kind, some minutes; OPTIONS='--fuzz release -k machine' for more"
	@echo "make bench   measure locks, writes, reads, and the pause when a leader dies"
	@echo "make bench-peers   the same beside etcd, ZooKeeper and Redis; OPTIONS='--quick', '--rows lock-64'"
	@echo "make compiled   compile what pyproject.toml names, here; make pure takes that back"
	@echo "make wheels  into dist: the wheel in Python, and one with compiled modules for this machine"
	@echo "make clean   remove .venv and caches (not ./data)"
	@echo "What tests need beside Python: tests/install. What docs/testing.md names: python -m tests.NAME."

run: $(VENV)/.installed
	@exec $(BIN)/coordinator dev --members 3 --data data

# Two workers for each of two cores: most tests wait more than they work. A file is one worker's, from end to end, and the
# files come in the order of tests/conftest.py, the long ones first.
WORKERS = $$($(BIN)/python -c 'import os; print(max(4, min(8, os.cpu_count() or 1)))')
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory -j2 lint fast-suite

# Beside lint, which keeps one core busy for half a minute where mypy has no cache yet.
fast-suite: compiled-tests
	@$(PYTEST) -m "not slow and not check"

# Where no test has run yet: one process compiles everything, while mypy works on another core, rather
# than every worker for itself.
compiled-tests: $(VENV)/.installed-dev
	@test -d tests/__pycache__ || $(BIN)/python -m pytest -qq --collect-only >/dev/null || true

# What is marked `check`; its tests wait still more. `tests/install guards` installs servers that some of it wants.
check: $(VENV)/.installed-dev
	@$(PYTEST) -m "check and not slow"

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict

# AT='f4b008a .' measures these revisions and directories side by side; OPTIONS=--json lists places.
house: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.house $(foreach each,$(AT),--at $(each)) $(OPTIONS)

bench: $(VENV)/.installed-dev
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.memory
	@$(BIN)/python -m bench.failover
	@$(BIN)/python -m bench.failover --stop
	@$(BIN)/python -m bench.sessions
	@$(BIN)/python -m bench.compiled

# Ours and the peers (bench/peers/install) in one run, into docs/benchmarks: about 20 minutes on two idle cores. It goes on
# with OPTIONS=--resume; OPTIONS='--rows lock-64,kill' measures these alone, --list names them.
bench-peers: $(VENV)/.installed-dev
	@$(BIN)/python -m bench.peers $(OPTIONS)

# The same source, compiled by mypyc beside it (setup.py). Needs a C compiler, three minutes of
# processor time on as many cores as there are, and 1 GB of memory; what runs then is what was
# compiled, until this is called again or `make pure`.
compiled: $(VENV)/.installed-dev pure
	@COORDINATOR_COMPILED=1 $(BIN)/python setup.py --quiet build_ext --inplace --force
	@find coordinator coordinator__mypyc*.so -name '*.so' -exec touch {} +
	@$(BIN)/coordinator --version

pure:
	@rm -rf build coordinator__mypyc*.so
	@find coordinator -name '*.so' -delete

wheels: $(VENV)/.installed-dev
	@$(BIN)/python -m pip wheel $(PIP_OPTIONS) --no-deps --wheel-dir dist .
	@COORDINATOR_COMPILED=1 $(BIN)/python -m pip wheel $(PIP_OPTIONS) --no-deps --wheel-dir dist .
	@ls dist

# Any number of seeds, for hours if you like; LEDGER=file adds a row about the run to it.
SEEDS ?= 100
START ?= 0
simulate: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --start $(START) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(LEDGER),--ledger $(LEDGER))

# Bugs planted in private copies; `make mutants NAMES=--list` says which there are.
mutants: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.mutants $(NAMES)

# The rows of the matrix of faults on real processes; `make faults OPTIONS=--help` says more.
faults: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.cluster.faults $(OPTIONS)

fuzz: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -q tests/fuzz --fuzz short $(OPTIONS)

clean:
	rm -rf $(VENV) .venv-* .bench-peers build dist *.so *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find coordinator -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment; a stamp says that it is as pyproject.toml wants it

# Debian splits ensurepip off into python3-venv. Where it is missing, an environment without pip
# will do: the pip outside installs into it.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; found none." >&2; exit 1; }
	@echo "Making $(VENV), once ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
		|| { rm -rf $(VENV); $(PYTHON) -m pip --version >/dev/null 2>&1 \
			&& $(PYTHON) -m venv --without-pip $(VENV) >/dev/null 2>&1; } \
		|| { rm -rf $(VENV); $(PYTHON) -m virtualenv --quiet $(VENV) 2>/dev/null; } \
		|| { rm -rf $(VENV); echo "$(PYTHON) can make no virtual environment; install its venv" \
			"module (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; }

define install
	@echo "Installing coordinator with what it needs into $(VENV), once: half a minute ..."
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		$(BIN)/python -m pip install $(PIP_OPTIONS) -e '$(1)'; \
	else \
		$(PYTHON) -m pip --python $(BIN)/python install $(PIP_OPTIONS) -e '$(1)'; \
	fi
	@touch $@
endef

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(call install,.[$(EXTRAS)])

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(call install,.[dev])
	@touch $(VENV)/.installed
