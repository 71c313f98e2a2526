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

.PHONY: help run test test-python test-debian debian-tools compiled-tests check lint house bench bench-peers bench-peers-tools compiled pure wheels simulate job-days ledger mutants mutate faults faults-tools \
	lock sbom pin-base guard-servers guard-object-store fuzz openapi-tools promtool clean
.DEFAULT_GOAL := help

help:
	@echo "make run     start three members on this machine, data kept in ./data; Ctrl-C stops them"
	@echo "make test    ruff, mypy --strict and the fast test suite"
	@echo "make test-python PYTHON=python3.13   the fast suite on another Python of this machine"
	@echo "make test-debian SUITE=trixie   the fast suite on the Python of another Debian; root"
	@echo "make check   what takes longer: a hundred worlds, stories, real clusters and servers"
	@echo "make lint    ruff and mypy --strict alone"
	@echo "make house   figures of the source: sizes, imports, duplicates, the ways of a write and a lock"
	@echo "make simulate SEEDS=100 START=0   simulated clusters under faults, one for each seed"
	@echo "make job-days DAYS=10000   simulated days of a daily job, each done once"
	@echo "make mutants [NAMES='...']   plant known bugs in a copy of the code: each must be found"
	@echo "make mutate MODULE=coordinator/state/locks/queues.py   do the tests see every small change?"
	@echo "make faults OPTIONS='--rows 1-3'   kill, cut and damage real clusters; root for all of it"
	@echo "make bench   measure locks, writes, reads, and the pause when a leader dies"
	@echo "make bench-peers   the same beside etcd, ZooKeeper and Redis; OPTIONS='--quick', '--rows lock-64'"
	@echo "make bench-peers-tools   what that needs; Go, Java with Maven, and root on Debian"
	@echo "make compiled   compile what pyproject.toml names, here; make pure takes that back"
	@echo "make wheels  into dist: the wheel in Python, and one with compiled modules for this machine"
	@echo "make sbom    the bill of materials of a container (CycloneDX), into dist"
	@echo "make lock    take the newest versions that pyproject.toml allows, with hashes; make pin-base, of the image"
	@echo "make guard-servers   install the databases that the guards are tried against; root, Debian"
	@echo "make browser   install the browser that the console is tried in; root, Debian"
	@echo "make screenshots   take the pictures of docs/console.md again"
	@echo "make guard-object-store   install MinIO for the guard of S3; Go"
	@echo "make openapi-tools   linters and generators for /openapi.json; Node.js, Java"
	@echo "make promtool   the linter of metrics; Debian"
	@echo "make fuzz    bad input of every kind, some minutes; OPTIONS='--fuzz release -k machine' for more"
	@echo "make clean   remove .venv and caches (not ./data)"

run: $(VENV)/.installed
	@exec $(BIN)/coordinator dev --members 3 --data data

# One worker more than there are cores: most tests wait more than they work. A file is one worker's, from end to end, and the
# files come in the order of tests/conftest.py, the long ones first.
WORKERS = $$($(BIN)/python -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory -j2 lint compiled-tests
	@$(PYTEST) -m "not slow and not check"

# Where no test has run yet: one process compiles everything, while mypy works on another core, rather
# than every worker for itself.
compiled-tests: $(VENV)/.installed-dev
	@test -d tests/__pycache__ || $(BIN)/python -m pytest -qq --collect-only >/dev/null || true

# The fast suite on another Python of this machine, in an environment of its own.
test-python:
	@$(MAKE) --no-print-directory test PYTHON=$(PYTHON) \
		VENV=$$($(PYTHON) -c 'import sys; print(".venv-%d.%d" % sys.version_info[:2])')

# The fast suite on the Python of another Debian, in a root of its own (.ci/debian): 3.13 is that of
# trixie. Needs root.
SUITE ?= trixie
test-debian:
	@.ci/debian $(SUITE)

debian-tools:
	$(APT) update || true
	$(APT) install -y --no-install-recommends debootstrap

# What is marked `check`; its tests wait still more. `make guard-servers` before it installs the servers that some of it wants.
check: WORKERS = 4
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

# Ours and the peers in one run, into docs/benchmarks: about 20 minutes on two idle cores. It goes on
# with OPTIONS=--resume; OPTIONS='--rows lock-64,kill' measures these alone, --list names them.
bench-peers: $(VENV)/.installed-dev
	@$(BIN)/python -m bench.peers $(OPTIONS)

# The peers and what speaks to them, in a folder that git ignores: etcd and a client in Go, ZooKeeper
# with its own client in Java, Redis and wrk of Debian, the clients in Python into .venv. What one
# line cannot install is named by `make bench-peers`, and left out.
PEERS := .bench-peers
bench-peers-tools: $(VENV)/.installed-dev
	@mkdir -p $(PEERS)
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then install="$(BIN)/python -m pip"; \
		else install="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
		$$install install $(PIP_OPTIONS) 'kazoo==2.11.0' 'grpcio==1.85.1' 'grpcio-tools==1.85.1'
	@$(BIN)/python -m grpc_tools.protoc -Ibench/peers/etcd --python_out=$(PEERS) \
		bench/peers/etcd/etcd.proto
	-@cd bench/peers/go && go build -trimpath -o $(CURDIR)/$(PEERS)/etcd \
		go.etcd.io/etcd/server/v3 && go build -trimpath -o $(CURDIR)/$(PEERS)/load .
	-@mvn -q -B -f bench/peers/zookeeper/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$(PEERS)/zookeeper
	-@javac -cp '$(PEERS)/zookeeper/*' -d $(PEERS) bench/peers/zookeeper/Load.java
	-@$(APT) install -y --no-install-recommends redis-server wrk

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

# What a container is made of, from requirements.lock and the metadata of what is installed here.
sbom: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.supply.sbom

# The versions and hashes of what a container installs, for the Python of its image: the newest that
# pyproject.toml allows. Read the diff, run the tests with them, commit.
LOCK = $(TOOLS)/lock/bin
LOCK_OPTIONS := --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
lock:
	@test -x $(LOCK)/pip-compile || { $(PYTHON) -m venv $(TOOLS)/lock && \
		$(LOCK)/python -m pip install $(PIP_OPTIONS) 'pip-tools>=7.5,<8'; }
	@echo setuptools >$(TOOLS)/lock/build.in
	@$(LOCK)/pip-compile $(LOCK_OPTIONS) --extra $(EXTRAS) \
		-o $(TOOLS)/lock/run.txt pyproject.toml
	@$(LOCK)/pip-compile $(LOCK_OPTIONS) -o $(TOOLS)/lock/build.txt $(TOOLS)/lock/build.in
	@for each in run:requirements.lock build:requirements-build.lock; do { \
		echo '# The versions and hashes of what a container installs: `make lock` writes this file.'; \
		grep -v '^$$\|^# The following' $(TOOLS)/lock/$${each%%:*}.txt; } >$${each#*:}; done

# The digest that the name of the base image has now, into the Dockerfile. Needs an image registry.
pin-base:
	@docker buildx version >/dev/null 2>&1 || { echo "make pin-base needs docker with buildx" >&2; exit 1; }
	@digest=$$(docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}') && \
		sed -i "s/^ARG BASE_IMAGE=.*/ARG BASE_IMAGE=python:3.11-slim@$$digest/" Dockerfile && \
		grep '^ARG BASE_IMAGE' Dockerfile

# The tables of docs/evidence.md, from the files of CSV beside it.
ledger: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.simulation.ledger
	@$(BIN)/python -m tests.docs.ledgers

# Any number of seeds, for hours if you like; LEDGER=file adds a row about the run to it.
SEEDS ?= 100
START ?= 0
simulate: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --start $(START) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(LEDGER),--ledger $(LEDGER))

# Years of a daily job, with crashes, stepped clocks and changes of leader: docs/jobs.md.
DAYS ?= 10000
job-days: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.recipes.job_days --days $(DAYS)

# Bugs planted in private copies; `make mutants NAMES=--list` says which there are.
mutants: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.mutants $(NAMES)

# Every small change of one pure module that a machine can make; without MODULE it says which.
mutate: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.mutation $(MODULE) $(OPTIONS)

# The rows of the matrix of faults on real processes; `make faults OPTIONS=--help` says more.
faults: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.cluster.faults $(OPTIONS)

# What its rows need besides root, on Debian and Ubuntu. Rows without their tool are skipped.
faults-tools:
	apt-get install -y --no-install-recommends iproute2 iptables util-linux e2fsprogs gcc libc6-dev

# The servers that the guards are tried against (tests/guards), on Debian and Ubuntu. The tests start
# their own; stop what the packages start if you do not want it. Without a server its tests are
# skipped, and say so.
APT := DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120
guard-servers:
	$(APT) update || true
	$(APT) install -y --no-install-recommends postgresql mariadb-server-core redis-server

.PHONY: browser screenshots

# The browser that the console is tried in (tests/console), on Debian and Ubuntu; playwright drives it
# and downloads none. Without it those tests are skipped, and say so.
browser:
	$(APT) update || true
	$(APT) install -y --no-install-recommends chromium fonts-dejavu-core

# The pictures of docs/console.md, of a cluster in which something of everything goes on.
screenshots: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.console.screenshots

# A real object store for the guard of S3, where Go (1.24 or newer) is; put it on the PATH. Debian has
# none. Without it moto's is taken, and `pytest -m slow tests/guards` has nothing to do.
guard-object-store:
	go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

# Linters of /openapi.json and generators of clients for tests/openapi_clients, kept in a folder that
# git ignores. Needs Node.js with npm and, for openapi-generator, Java; it fetches a jar of Maven Central.
TOOLS := .openapi-tools
openapi-tools: $(VENV)/.installed-dev
	@mkdir -p $(TOOLS)
	@cd $(TOOLS) && npm install --no-audit --no-fund --no-save @stoplight/spectral-cli@6.16.3 \
		@redocly/cli@2.77.0 @openapitools/openapi-generator-cli@2.35.0
	@cd $(TOOLS) && node_modules/.bin/openapi-generator-cli version-manager set 7.23.0
	@$(BIN)/python -m venv $(TOOLS)/python
	@$(TOOLS)/python/bin/python -m pip install $(PIP_OPTIONS) openapi-python-client==0.29.1 \
		'urllib3>=2.1,<3' 'pydantic>=2.11' python-dateutil typing-extensions

# promtool, which reads /metrics as Prometheus does (tests/wire/test_metrics.py), on Debian: taken out
# of its package into the same folder, so that no Prometheus is started on this machine.
promtool:
	@mkdir -p $(TOOLS)/debian
	@cd $(TOOLS)/debian && apt-get download prometheus && dpkg -x prometheus_*.deb . \
		&& cp usr/bin/promtool ..

fuzz: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -q tests/fuzz --fuzz short $(OPTIONS)

clean:
	rm -rf $(VENV) .venv-* $(PEERS) build dist *.so *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
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
