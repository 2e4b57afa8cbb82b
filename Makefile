# Everything is started from here. `make` alone lists what there is.
#
# With an active conda environment (made from environment.yml) that environment is used. Otherwise .venv is made from
# requirements.lock, once: its stamps carry the checksums of requirements.lock and pyproject.toml, so it is made again
# only when these change, when the checkout is moved, when its Python is gone, or when making it was interrupted.

PARAMS ?= params/missing-index.yaml#  what `report` compares, and `lab` where it is given
NOTEBOOK ?= start#                  the notebook that `lab` opens: investigate, ramp_up, significance, ...
TEST ?=#                            the test that it opens,
METRIC ?=#                          and the metric, such as p99-api-times,
LABEL ?=#                           or the label, such as "api getPost p99"
ARGS ?=#                            further options of the command that a target runs
TESTS ?=#                           the tests to run, such as tests/load; all of them when empty
WORKERS ?= logical#                 how many tests run at a time; 0: in one process, for a debugger
DATA ?=#                            the data folder that `prometheus` serves
PORT ?= 9090#                       and its port
SECONDS ?= 600#                     how long `fuzz` takes, in CPU
PYTHON ?=#                          the Python that makes .venv; found when empty
UPGRADE ?=#                         `make lock UPGRADE=1` moves every version, not only what pyproject.toml asks for
UV_VERSION := 0.13.8
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
ifeq ($(CONDA),yes)
RUN := "$(CONDA_PREFIX)/bin/python"
READY := conda-environment
EVERYTHING := conda-environment
else
RUN := .venv/bin/python
PACKAGES := .venv/.packages-$(shell { pwd -P; cat requirements.lock; } | cksum | tr -cd 0123456789)
READY := .venv/.project-$(shell cksum < pyproject.toml | tr -cd 0123456789)
EVERYTHING := .venv/.everything
endif

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
	@$(RUN) benchmarks/fuzz.py $(SECONDS)

audit: $(EVERYTHING) ## the packages of requirements.lock: their licences, and what a database of advisories says of them
	@$(RUN) .ci/licences.py
	@$(RUN) .ci/audit.py

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

lock: ## pin every package again in requirements.lock, with hashes; UPGRADE=1: to new versions
	@$(find_python); \
	  tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; set -e; \
	  "$$python" -m venv "$$tmp/venv"; \
	  "$$tmp/venv/bin/python" -m pip install --quiet uv==$(UV_VERSION); \
	  "$$tmp/venv/bin/python" -m uv --quiet --no-config pip compile --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    $(if $(UPGRADE),--upgrade) --extra dev --output-file requirements.lock pyproject.toml; \
	  echo "requirements.lock: $$(grep -c == requirements.lock) packages"

clean: ## remove reports and caches, keep the environment
	@rm -rf reports build dist htmlcov coverage.xml .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find lib tests benchmarks notebooks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove the environment too
	@rm -rf .venv lib/buildcompare.egg-info

# ---- the environment ---------------------------------------------------------------------------------------------------

# Some Pythons only look as if they were there: a pyenv shim without a version behind it, Debian's without its venv half.
define find_python
python=; \
  for candidate in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3); do \
    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
      python=$$candidate; break; \
    fi; \
  done; \
  if [ -z "$$python" ]; then \
    echo "buildcompare needs Python 3.11 or newer with its venv module, and $(if $(PYTHON),$(PYTHON) is none,found none)." >&2; \
    echo "Install one (Debian, Ubuntu: python3 and python3-venv) or name it: make PYTHON=/path/to/python3.12" >&2; \
    exit 1; \
  fi
endef

SECONDS_SINCE = $$(($$(date +%s) - $$(cat .venv/.started)))

# What a report needs of requirements.lock: its packages without those that only JupyterLab and the tests ask for.
define REPORT_LOCK
import pathlib, re, tomllib

LATER = {"anywidget", "ipywidgets", "jupyterlab"}
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8")).get("project", {})
asked = {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in project.get("dependencies", ())}
asked = (asked - LATER) | {"setuptools"}  # which installs the project itself
pins = re.split(r"\n(?=[A-Za-z0-9])", "\n" + pathlib.Path("requirements.lock").read_text(encoding="utf-8"))[1:]
names = {pin.split("==")[0]: pin for pin in pins}
via = {name: set(re.findall(r"^ +#(?: via)? +([\w.-]+)$$", pin, flags=re.MULTILINE)) for name, pin in names.items()}
if asked - names.keys():
    raise SystemExit(1)  # another lock than ours: all of it is installed
kept = set(asked)
while more := {name for name in names.keys() - kept - LATER if via[name] & kept}:
    kept |= more
print("\n".join(names[name].rstrip() for name in sorted(kept)))
endef
export REPORT_LOCK

# Installs what the file $(1) pins: by uv where it can be had, from where pip is told to, else by pip. Like pip, uv trusts
# whom the system trusts: behind a company's proxy its own list of authorities would not do.
define install
uv=; \
  if [ -z "$$PIP_NO_INDEX" ]; then \
    uv=$$(command -v uv) || { .venv/bin/python -m pip install --quiet --no-input uv==$(UV_VERSION) 2>/dev/null && uv=.venv/bin/uv; } || uv=; \
  fi; \
  index=$${PIP_INDEX_URL:-$$(.venv/bin/python -m pip config get global.index-url 2>/dev/null)} || index=; \
  [ -z "$$index" ] || export UV_DEFAULT_INDEX="$$index"; \
  [ -z "$$PIP_CERT" ] || export SSL_CERT_FILE="$$PIP_CERT"; \
  export UV_SYSTEM_CERTS="$${UV_SYSTEM_CERTS:-1}"; \
  { [ -n "$$uv" ] && { "$$uv" pip install --quiet --python .venv/bin/python --require-hashes --requirement $(1) || \
    { echo "uv could not install them (above): pip does it now, which takes longer." >&2; false; }; }; } || \
    .venv/bin/python -m pip install --quiet --no-input --require-hashes --requirement $(1)
endef

# A .venv without its stamp is of another lock, of another place or half made, and never trusted.
$(PACKAGES): $(shell [ -x .venv/bin/python ] || echo FORCE)
	@$(find_python); set -e; \
	  echo "Making .venv with $$("$$python" --version) from requirements.lock, once."; \
	  echo "1 of 3: an empty environment"; \
	  rm -rf .venv; mkdir .venv; date +%s > .venv/.started; \
	  "$$python" -m venv .venv; \
	  .venv/bin/python -c "$$REPORT_LOCK" > .venv/report.lock || cp requirements.lock .venv/report.lock; \
	  echo "2 of 3: $$(grep -c == .venv/report.lock) packages (after $(SECONDS_SINCE) s)"; \
	  $(call install,.venv/report.lock); \
	  touch $@

.venv/.project-%: $(PACKAGES)
	@rm -f .venv/.project-*
	@if [ -f .venv/.started ]; then echo "3 of 3: buildcompare itself (after $(SECONDS_SINCE) s)"; fi
	@.venv/bin/python -m pip install --quiet --no-input --no-deps --no-build-isolation --editable .
	@if [ -f .venv/.started ]; then echo "The environment is ready, after $(SECONDS_SINCE) s."; rm .venv/.started; fi
	@touch $@

# What JupyterLab and the tests need beside it is not in the way of the first report.
.venv/.everything: $(PACKAGES) | $(READY)
	@set -e; date +%s > .venv/.started; \
	  echo "Adding JupyterLab and the tools of developers to .venv: $$(grep -c == requirements.lock) packages in all, once."; \
	  $(call install,requirements.lock); \
	  echo "All is there, after $(SECONDS_SINCE) s."; rm .venv/.started; touch $@

define CONDA_CHECK
import importlib.metadata, pathlib, sys, tomllib
import buildcompare
from packaging.requirements import Requirement

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
for line in project["dependencies"] + project["optional-dependencies"]["dev"]:
    wanted = Requirement(line)
    if wanted.marker and not wanted.marker.evaluate():
        continue
    if not wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True):
        sys.exit(1)
sys.exit(pathlib.Path(buildcompare.__file__).resolve().parents[2] != pathlib.Path.cwd().resolve())
endef
export CONDA_CHECK

conda-environment:
	@$(RUN) -c "$$CONDA_CHECK" 2>/dev/null || { \
	  echo "Installing buildcompare, and what it misses, into the conda environment $(CONDA_PREFIX)."; \
	  $(RUN) -m pip install --quiet --no-input "setuptools>=77" && \
	  $(RUN) -m pip install --quiet --no-input --no-build-isolation --editable ".[dev]"; }

FORCE:
.PHONY: help report batch index lab example prometheus data test test-fast bench fuzz audit docs golden lint format setup lock clean distclean conda-environment FORCE
