# Every target installs what it needs: on a fresh machine, `make demo` or `make test` is all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
# One mark per set of extras, so that the demo does not wait for the developers' tools.
DEMO := $(VENV)/.ready-demo
DEV := $(VENV)/.ready-dev
DOCS := $(VENV)/.ready-docs

.PHONY: demo demo-full test test-slow torture check format bench docs screenshots site clean

demo: $(DEMO)
	$(BIN)/colabel demo --out demo

# Every system of the paper, in the same folder: takes several times as long.
demo-full: $(DEMO)
	$(BIN)/colabel demo --minutes 120 --set study.systems=[] --set study.sweep=true --out demo

# One thread per process: otherwise torch, faiss and BLAS compete for the cores.
test: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q --numprocesses logical --maxprocesses 4 --dist worksteal

test-slow: $(DEV)
	$(BIN)/pytest -q -m slow

# Hours: kills, full disks, two writers and damage at random places, as often as COLABEL_TORTURE says.
torture: $(DEV)
	COLABEL_TORTURE=$${COLABEL_TORTURE:-200} OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/reliability

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV)
	$(BIN)/python benchmarks/run.py

# The generated pages and tables of docs/ and README.md.
docs: $(DEV)
	$(BIN)/python -m docs.generate

# The pictures of the web app in docs/images; needs Chromium.
screenshots: $(DEV)
	$(BIN)/python -m docs.screenshots

# The documentation as a website with search, in site/.
site: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) demo site

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "colabel needs Python 3.11 or newer: make PYTHON=python3.11 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[offline,demo,serve]"
	touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[offline,demo,docs,dev]"
	touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[docs]"
	touch $@
