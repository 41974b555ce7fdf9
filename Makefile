# Everything a newcomer needs: `make demo`. Each target does its own set-up first.
#
# TORCH_INDEX  address of PyTorch's CPU wheel index, for machines whose default index would bring the CUDA build
#              (see docs/guide/install.md); empty: the default index.
# TEST_PROCESSES  how many processes share the tests, a file each at a time; each takes 1 GB. More than cores: tests wait, too.
# TEST_OPTIONS  more words for the pytest of `make test`.
# WORKLOADS, FLEET, SEED, JOBS, POLICY  see docs/guide/demo.md.

PYTHON ?= python3
TEST_PROCESSES ?= 4
TORCH_INDEX ?=
TORCH_VERSION := 2.13.0
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/.ready
STAMP := $(VENV)/.compiled
TWIN := policy_net/twin/core
PROTO := policy_net/exchange
GENERATED := $(PROTO)/generated
JOB_PROTO := elastic_runtime/proto
JOB_GENERATED := elastic_runtime/generated
NOT_USED := /^ \# This class is part of an EXPERIMENTAL API/,/^class .*Stub/{/^class .*Stub/!d}

CHECKS_VERSION := -e '/^import warnings$$/d' -e '/^GRPC_GENERATED_VERSION/,/^    )$$/d'

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-train demo-kube test test-long soak check _types _others docs format proto reference chart bench clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 11

setup: $(STAMP) ## build .venv with the pinned dependencies (CPU build of torch)

$(PACKAGES): pyproject.toml constraints.txt
	@rm -f $(PACKAGES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedl2 needs Python 3.11 or newer; name one with PYTHON=…" >&2; exit 2; }
	@# Debian splits ensurepip off: without it, the system's pip puts one into the environment.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -qq pip; } || { \
	  echo "setup: $(PYTHON) can make no virtual environment: install its venv and pip modules" >&2; exit 2; }
	@echo "setup: fetching and unpacking PyTorch into $(VENV), 750 MB (1 of 2); pip says nothing until it is done"
	$(BIN)/python -m pip install -qq $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") -c constraints.txt torch==$(TORCH_VERSION)
	@# nvidia-ml-py is ours, and no part of CUDA.
	@if $(BIN)/python -m pip list --format=freeze | grep -i '^nvidia[-_]' | grep -iv '^nvidia[-_]ml[-_]py=' >/dev/null; then \
	  echo "setup: the package index gave torch's CUDA build (nvidia-* packages). Remove $(VENV) and run again with TORCH_INDEX=<address of PyTorch's CPU wheel index>; see docs/guide/install.md" >&2; \
	  exit 2; fi
	@echo "setup: the other pinned packages, 1.2 GB, and fedl2 itself (2 of 2); silent too. In all a minute beside a fast index, several far from one"
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip check
	@touch $(PACKAGES)

# Without a compiler the build says so and goes on: simulations then run on the reference, slower.
$(STAMP): $(PACKAGES) setup.py $(wildcard $(TWIN)/*.[ch] $(TWIN)/*/*.[ch])
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $(STAMP)

demo: $(STAMP) ## a learner and three clusters on this machine; ends by itself with a report
	@$(BIN)/python -m deploy.local $(if $(WORKLOADS),--workloads "$(WORKLOADS)") $(if $(FLEET),--fleet "$(FLEET)") \
	  $(if $(SEED),--seed "$(SEED)") $(if $(JOBS),--jobs "$(JOBS)") $(if $(POLICY),--policy "$(POLICY)")

demo-train: $(STAMP) ## six real jobs on this machine, resized while they train; ends by itself with a report
	@$(BIN)/python -m deploy.train

demo-kube: $(STAMP) ## a test cluster with real pods: jobs applied with kubectl, trained and resized by an agent
	@$(BIN)/python -m deploy.kube

# A process that died is not replaced: xdist would give its successors the same test, and then wait for ever.
PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Tests start hundreds of processes: with what is compiled at hand, each begins sooner.
test test-long soak check: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP) ## all tests that take less than seconds each
	$(PYTEST) -m 'not heavy and not long' $(TEST_OPTIONS)

test-long: $(STAMP) ## the other tests: programs that work together, real jobs, demonstrations and kills by the dozen
	$(PYTEST) -m 'heavy or long'

soak: $(STAMP) ## nightly: 1,000 kills of the learner, 200 damaged places of each of its files, each fault of a write with a restart and without, other examples of each property
	@# These take longer than whatever else hangs that long.
	FEDL2_KILLS=1000 FEDL2_PLACES=200 FEDL2_RESTARTS=both $(BIN)/python -m pytest -s -o faulthandler_timeout=0 \
	  tests/faults/test_learner_killed.py tests/hostile/test_durability.py tests/faults/kubernetes/test_training_writes.py
	$(PYTEST) --hypothesis-profile=search -m hypothesis

check: $(STAMP) ## ruff, mypy, import-linter, docs tests, and the site builds
	@# mypy takes as long as all the others.
	@$(MAKE) --no-print-directory -j2 _types _others

_types: $(STAMP)
	$(BIN)/mypy
	@# What a job's script imports runs with an older Python as well.
	$(BIN)/mypy --python-version 3.10 --cache-dir .mypy_cache/3.10 -p elastic_runtime -p foundation

_others: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m 'not heavy and not long' tests/docs

docs: $(STAMP) ## the documentation as a site, in build/site; `make check` builds it too
	@$(BIN)/python -m deploy.site

format: $(STAMP) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(STAMP) ## regenerate the committed stubs from the .proto files; leaves no diff
	$(BIN)/python -m grpc_tools.protoc -I $(PROTO) --python_out=$(GENERATED) --pyi_out=$(GENERATED) --grpc_python_out=$(GENERATED) fleet.proto
	$(BIN)/python -m grpc_tools.protoc -I $(JOB_PROTO) --python_out=$(JOB_GENERATED) --pyi_out=$(JOB_GENERATED) --grpc_python_out=$(JOB_GENERATED) elastic.proto
	@# protoc writes top-level imports, where ours are packages, and an experimental interface that nothing here uses.
	sed -i -e 's/^import fleet_pb2 as/from policy_net.exchange.generated import fleet_pb2 as/' -e '$(NOT_USED)' $(GENERATED)/fleet_pb2_grpc.py
	sed -i -e 's/^import elastic_pb2 as/from elastic_runtime.generated import elastic_pb2 as/' -e '$(NOT_USED)' $(CHECKS_VERSION) $(JOB_GENERATED)/elastic_pb2_grpc.py
	@# A job's script may have an older protobuf and gRPC than what these were made with; they run with them (tests/wheel).
	sed -i -e '/import runtime_version as/d' -e '/^_runtime_version\./,/^)$$/d' $(JOB_GENERATED)/elastic_pb2.py

reference: $(STAMP) ## rewrite the guide's pages of commands, metrics and settings
	@$(BIN)/python -m deploy.reference

chart: $(STAMP) ## rewrite the copies of CRDs, roles, alerts and settings that the Helm chart holds
	@$(BIN)/python -m deploy.packaging

bench: $(STAMP) ## the learning benchmark: a JSON record on stdout
	@$(BIN)/python -m benchmarks.learning -o json

clean: ## remove what runs left behind (not .venv)
	rm -rf run run-train report build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
