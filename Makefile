# Everything is started from here. `make` alone lists what there is.
#
# An active conda environment (made from environment.yml) is used where there is one. Otherwise the first command makes
# .venv from requirements.lock (what a report needs); JupyterLab and the tests add requirements-dev.lock to it.

PARAMS ?= params/missing-index.yaml#  what `report` compares, and `lab` where it is given
NOTEBOOK ?= start#                  the notebook that `lab` opens: investigate, ramp_up, significance, ...
TEST ?=#                            the test that it opens,
METRIC ?=#                          and the metric, such as p99-api-times,
LABEL ?=#                           or the label, such as "api getPost p99"
WINDOW ?=#                          and the window in elapsed seconds, such as 600-1200
ARGS ?=#                            further options of the command that a target runs
TESTS ?=#                           the tests to run, such as tests/load; all of them when empty
WORKERS ?= logical#                 how many tests run at a time; 0: in one process, for a debugger
DATA ?=#                            the data folder that `prometheus` serves
PORT ?= 9090#                       and its port
SECONDS ?= 600#                     how long `fuzz` takes, in CPU
PYTHON ?=#                          the Python that makes .venv; found when empty
UPGRADE ?=#                         `make lock UPGRADE=1` moves every version, not only what pyproject.toml asks for
UV := --require-hashes --requirement requirements-uv.lock
LICENCES := Apache;BSD;CC0;CNRI;HPND;ISC;MIT;Mozilla Public License;MPL;PSF;Python Software Foundation;Public Domain;0BSD;Unlicense;ZPL;Zlib
COMPILE := uv --quiet --no-config pip compile --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --no-strip-extras \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
NBSTRIPOUT := -m nbstripout --extra-keys metadata.language_info.version

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

# What a shell's own settings would otherwise mix into the environment.
unexport PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX
# Without its byte code every command and every kernel would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
# Threads for matrices as small as ours cost more than the sums: a notebook's comparison takes twice the CPU with them.
export OPENBLAS_NUM_THREADS ?= 1
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

CONDA := $(shell [ -n "$$CONDA_PREFIX" ] && [ "$$CONDA_DEFAULT_ENV" != base ] && [ -x "$$CONDA_PREFIX/bin/python" ] && echo yes)
RUN := $(if $(CONDA),"$(CONDA_PREFIX)/bin/python",.venv/bin/python)
READY := $(if $(CONDA),conda,.venv/.report-$(shell pwd -P | cksum | tr -cd 0-9))
EVERYTHING := $(if $(CONDA),conda,.venv/.dev)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo 'PARAMS=params/X.yaml chooses a comparison, ARGS="--option" goes to the command, PYTHON=python3.12 makes .venv.'

report: $(READY) ## compare two builds: PARAMS=params/X.yaml -> reports/X/report.html
	@$(RUN) -m buildcompare report "$(PARAMS)" $(ARGS)

batch: $(READY) ## every comparison in params/
	@$(RUN) -m buildcompare batch params/*.yaml $(ARGS)

index: $(READY) ## put every published report on one page again: reports/index.html
	@$(RUN) -m buildcompare index $(ARGS)

# What a report names goes to JupyterLab without a shell between: a label may hold quotes.
lab: export PARAMS := $(if $(filter file,$(origin PARAMS)),,$(PARAMS))
lab: export BUILDCOMPARE_TEST = $(TEST)
lab: export BUILDCOMPARE_METRIC = $(METRIC)
lab: export BUILDCOMPARE_LABEL = $(LABEL)
lab: export BUILDCOMPARE_WINDOW = $(WINDOW)
lab: $(EVERYTHING) ## open the notebooks in JupyterLab: NOTEBOOK=investigate PARAMS=params/X.yaml TEST=name METRIC=slug
	@[ -f "notebooks/$(NOTEBOOK).ipynb" ] || { cd notebooks && set -- *.ipynb; \
	  echo "make lab: expected NOTEBOOK=one of $$*, found '$(NOTEBOOK)'" >&2; exit 3; }
	@$(RUN) -m jupyterlab $$([ "$$(id -u)" -ne 0 ] || echo --allow-root) \
	  --LabApp.default_url="/lab/tree/notebooks/$(NOTEBOOK).ipynb" $(ARGS)

example: $(READY) ## record a comparison here, a PostgreSQL with and without an index: ARGS="--repeats 2 --seconds 32"
	@params/example/example.sh $(RUN) $(ARGS)

prometheus: ## serve a copy of an archived Prometheus data folder: DATA=folder, PORT=9090
	@[ -d "$(DATA)" ] || { echo "make prometheus: expected DATA=a Prometheus data folder, found '$(DATA)'" >&2; exit 3; }
	@for part in "$(DATA)"/wal/ "$(DATA)"/*/chunks/; do if [ -d "$$part" ]; then exit 0; fi; done; \
	  echo "make prometheus: expected in DATA blocks (*/chunks) or a log (wal) of Prometheus, found neither in '$(DATA)'" >&2; exit 3
	@command -v prometheus >/dev/null || { echo "make prometheus: expected the program prometheus, found none" >&2; exit 3; }
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; \
	  cp -R "$(DATA)/." "$$tmp/data"; rm -f "$$tmp/data/lock"; echo 'global: {}' > "$$tmp/prometheus.yml"; \
	  echo "A copy of $(DATA) is served on http://127.0.0.1:$(PORT); Ctrl-C ends it and removes the copy."; \
	  prometheus --config.file="$$tmp/prometheus.yml" --storage.tsdb.path="$$tmp/data" \
	    --storage.tsdb.retention.time=100y --storage.tsdb.min-block-duration=2h --storage.tsdb.max-block-duration=2h \
	    --web.listen-address=127.0.0.1:$(PORT) --log.level=warn

data: $(READY) ## simulate the bundled recordings again (from a fixed seed: the same values)
	@$(RUN) -m buildcompare simulate $(ARGS)

test: $(EVERYTHING) ## run the tests with coverage; TESTS=tests/load: only these, without
	@$(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(if $(TESTS),$(TESTS),--cov) $(ARGS)

test-fast: $(EVERYTHING) ## only the tests that need no kernel, browser, server or real data, in one process
	@$(RUN) -m pytest -q -m "not slow" $(TESTS) $(ARGS)

bench: $(EVERYTHING) ## all that is to be fast, in one table of ratios, ten minutes; ARGS=reports: one part; ARGS=--profile: a report's CPU
	@$(RUN) benchmarks/speed.py $(ARGS)

fuzz: $(EVERYTHING) ## give changed files to every reader: SECONDS=3600 (of CPU)
	@$(RUN) tests/stress/fuzz.py $(SECONDS)

# Their metadata name no licence; their licence files do: Apache-2.0, MIT.
UNSTATED := atheris axe-playwright-python
audit: $(EVERYTHING) ## licences of the installed packages, and what databases of advisories say of the locked ones
	@$(RUN) -m piplicenses --partial-match --allow-only "$(LICENCES)" --ignore-packages $(UNSTATED) --summary
	@$(RUN) -m pip_audit --strict --disable-pip --require-hashes --requirement requirements-dev.lock

docs: $(EVERYTHING) ## build the documentation: build/docs/index.html
	@$(RUN) -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo "build/docs/index.html"

golden: $(EVERYTHING) ## accept what the bundled comparisons publish now, in tests/golden; then look at `git diff`
	@$(RUN) tests/golden.py

lint: $(EVERYTHING) ## check code and notebooks: ruff, mypy, no outputs in notebooks
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --quiet --check .
	@$(RUN) -m mypy --no-error-summary
	@set -- notebooks/*.ipynb; [ ! -e "$$1" ] || $(RUN) $(NBSTRIPOUT) --verify "$$@"
	@echo "lint: clean"

format: $(EVERYTHING) ## put code and notebooks in shape, and empty the notebooks of outputs
	@$(RUN) -m ruff check --quiet --fix . || true
	@$(RUN) -m ruff format --quiet .
	@set -- notebooks/*.ipynb; [ ! -e "$$1" ] || $(RUN) $(NBSTRIPOUT) "$$@"

setup: $(EVERYTHING) ## only make the environment; every target does it where it is missing

lock: ## pin every package again in both lock files, with hashes; UPGRADE=1: to new versions
	@$(find_python); "$$python" -m venv build/lock; build/lock/bin/python -m pip install --quiet $(UV)
	@$(if $(UPGRADE),echo uv | build/lock/bin/$(COMPILE) --no-annotate --output-file requirements-uv.lock -)
	@build/lock/bin/$(COMPILE) $(if $(UPGRADE),--upgrade) --all-extras --output-file requirements-dev.lock pyproject.toml
	@build/lock/bin/$(COMPILE) --constraint requirements-dev.lock --extra build --output-file requirements.lock pyproject.toml

clean: ## remove reports and caches, keep the environment
	@rm -rf reports build dist htmlcov coverage.xml .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find lib tests benchmarks notebooks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove the environment too
	@rm -rf .venv lib/buildcompare.egg-info

# ---- the environment --------------------------------------------------------------------------------------------------

# Some Pythons only look as if they were there: a pyenv shim without a version behind it, Debian's without its venv half.
define find_python
for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
  "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && break; python=; \
done; \
if [ -z "$$python" ]; then \
  echo "buildcompare needs Python 3.11 or newer with its venv module, and found none$(if $(PYTHON), as $(PYTHON))." >&2; \
  echo "Install one (Debian, Ubuntu: python3 and python3-venv) or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; \
fi
endef

# Installs what a lock file pins: with uv, by the index and the certificates of pip and of the system, or else with pip.
define install
index=$${PIP_INDEX_URL:-$$($(RUN) -m pip config get global.index-url 2>/dev/null || true)}; \
[ -z "$$index" ] || export UV_DEFAULT_INDEX="$$index"; [ -z "$$PIP_CERT" ] || export SSL_CERT_FILE="$$PIP_CERT"; \
{ [ -z "$$PIP_NO_INDEX" ] && $(RUN) -m pip install --quiet --no-input $(UV) 2>/dev/null && \
  UV_SYSTEM_CERTS=$${UV_SYSTEM_CERTS:-1} $(RUN) -m uv pip install --quiet --require-hashes --requirement $(1); } || \
$(RUN) -m pip install --quiet --no-input --require-hashes --requirement $(1)
endef

# The stamp's name holds the folder's checksum: a checkout that was moved, or half an environment, is made again.
.venv/.report-%: requirements.lock pyproject.toml $(shell [ -x .venv/bin/python ] || echo FORCE)
	@$(find_python); echo "Making .venv with $$("$$python" --version): $$(grep -c == $<) packages, once."; \
	  rm -rf .venv; "$$python" -m venv .venv
	@$(call install,$<)
	@$(RUN) -m pip install --quiet --no-input --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: requirements-dev.lock $(READY)
	@echo "Adding JupyterLab and the tools of developers to .venv: $$(grep -c == $<) packages in all, once."
	@$(call install,$<)
	@touch $@

FORCE:
conda:
	@$(RUN) -m pip install --quiet --no-input --no-build-isolation --editable ".[lab,dev]"

.PHONY: help report batch index lab example prometheus data test test-fast bench fuzz audit docs golden lint format setup lock clean distclean conda FORCE
