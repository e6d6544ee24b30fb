# Recovery Lab: everything starts here; `make help` lists the targets.
# Only relative paths, for the folder's own name may hold spaces and letters of any script.

PYTHON ?=
VENV   ?= .venv
FLAGS  ?=

ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PY := $(BIN)/python
# The benchmarks' own set-up: one of the engines brings a pytest plugin, which must not get into the suite.
BENCH := $(VENV)/bench
BENCH_PY := $(BENCH)/$(notdir $(BIN))/python

# Python to build on: PYTHON where it is given, else the first of these that will do.
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python)
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# A finished set-up says in the file `ready` where and with which Python it was made, and from what. So one that
# was moved, copied, left half done or is out of date is noticed.
PLACE  := import sys; print(ascii(sys.prefix), sys.version.split()[0], end="")
SOURCE := import hashlib, pathlib; \
  print(*(hashlib.sha256(pathlib.Path(n).read_bytes()).hexdigest() for n in ("pyproject.toml", "requirements.lock")), end="")
SOUND   = [ -f "$(VENV)/ready" ] && [ "$$(sed -n 1p "$(VENV)/ready")" = "$$($(PY) -c '$(PLACE)' 2>/dev/null)" ] && \
  { [ -z "$(PYTHON)" ] || [ "$$("$(PYTHON)" -V 2>&1)" = "$$($(PY) -V)" ]; }
CURRENT = [ "$$(sed -n 2p "$(VENV)/ready")" = "$$($(PY) -c '$(SOURCE)')" ]

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab doctor test suite drill conformance bench browser lint types wheel answers refresh lock clean .venv set-up bare-venv

help: ## this list
	@sed -n 's/^\([a-z.-]*\):.*## /  make \1	/p' Makefile

lab: .venv ## set up if need be, then open the lab in JupyterLab
	@$(BIN)/recovery-lab open $(FLAGS)

doctor: .venv ## check the set-up and say what is missing
	@$(BIN)/recovery-lab doctor $(FLAGS)

test: suite browser ## the whole suite: package, notebooks (nbval), browser

suite: .venv ## the suite without the browser
	$(PY) -m pytest tests notebooks --ignore=tests/browser --ignore=tests/benchmarks \
	  --nbval --nbval-current-env --nbval-cell-timeout=60 -n auto --dist loadscope $(FLAGS)

drill: .venv ## the long searches that the suite leaves out
	$(PY) -m pytest tests --ignore=tests/browser --ignore=tests/benchmarks -m drill -n auto $(FLAGS)

conformance: .venv ## the simulated world against real processes, run by run; some minutes
	$(PY) tests/conformance.py $(FLAGS)

bench: .venv ## how fast things are on this machine, beside other ways; a few minutes
	@$(PY) -m uv venv --quiet --allow-existing --python $(PY) "$(BENCH)"
	@$(PY) -m uv pip install --quiet --python "$(BENCH)" -r requirements.lock -e ".[bench]" || { \
	  echo "Not all of the extra 'bench' can be installed; what is missing is marked in the table." >&2; \
	  $(PY) -m uv pip install --quiet --python "$(BENCH)" -r requirements.lock -e .; }
	$(BENCH_PY) tests/benchmarks/bench_store.py $(FLAGS)
	$(BENCH_PY) tests/benchmarks/bench_explore.py

browser: .venv ## the browser tests, skipped where no browser is found
	$(PY) -m pytest tests/browser $(FLAGS)

lint: .venv ## ruff: rules and format, notebooks included
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: .venv ## mypy --strict on labkit
	$(PY) -m mypy

wheel: .venv ## build the wheel into dist, and check that it holds every file of the package
	@rm -rf dist && $(PY) -m uv build --quiet --wheel --out-dir dist
	@$(PY) -m zipfile -l dist/*.whl | cut -d ' ' -f 1 > dist/names
	@find labkit -type f ! -path '*/__pycache__/*' | { missing=0; while read -r name; do \
	  grep -qxF "$$name" dist/names || { echo "the wheel lacks $$name" >&2; missing=1; }; done; exit $$missing; }

answers: .venv ## try the sample answers to all exercises and print what their checks say
	@cd tests && "$(abspath $(BIN))/python" -m answers $(FLAGS)

refresh: .venv ## run all notebooks and rewrite their stored outputs
	$(PY) tests/refresh.py

lock: ## write requirements.lock again (for newest versions: make lock FLAGS=--upgrade)
	@$(PY) -m uv --version >/dev/null 2>&1 || $(MAKE) --no-print-directory bare-venv
	$(PY) -m uv pip compile --universal --python-version 3.11 --extra test --quiet --no-annotate \
	  --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock $(FLAGS) pyproject.toml

clean: ## remove what make made
	rm -rf "$(VENV)" .hypothesis .mypy_cache .pytest_cache .ruff_cache dist

.venv: ## the set-up alone; quick where it is up to date
	@{ $(SOUND) && $(CURRENT); } || $(MAKE) --no-print-directory set-up

set-up:
	@$(SOUND) || $(MAKE) --no-print-directory bare-venv
	@echo "Installing what requirements.lock names ..."
	@$(PY) -m uv pip install --quiet --python "$(VENV)" -r requirements.lock -e . || { \
	  echo "uv did not manage it; trying pip, which takes longer." >&2; \
	  $(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock -e .; }
	@{ $(PY) -c '$(PLACE)' && echo && $(PY) -c '$(SOURCE)' && echo; } > "$(VENV)/ready"

bare-venv:
	@for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c '$(USABLE)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'No Python 3.11 or newer that can make a virtual environment was found. Tried: $(CANDIDATES)' >&2; \
	  echo 'Install one (on Debian and Ubuntu with python3-venv), or name yours: make lab PYTHON=/its/path' >&2; \
	  exit 1; \
	fi; \
	base=$$("$$python" -c 'import sys; print(sys._base_executable, end="")') && \
	  echo "Setting up $(VENV) with $$("$$base" -V) ..." && "$$base" -m venv --clear "$(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check uv || echo "uv cannot be installed here." >&2
