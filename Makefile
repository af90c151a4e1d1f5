# Every target sets up what it needs: on a fresh machine, `make demo` or `make test` is all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo demo-full test test-slow check format bench docs clean

demo: $(READY)
	$(BIN)/colabel demo --out demo

# All systems of the paper on the same collection and in the same folder: takes several times as long.
demo-full: $(READY)
	$(BIN)/colabel demo --full --out demo

# One thread a process: torch, faiss and BLAS in several processes would otherwise fight for the cores.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q --numprocesses logical --maxprocesses 4 --dist worksteal

test-slow: $(READY)
	$(BIN)/pytest -q -m slow

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/run.py

docs: $(READY)
	$(BIN)/python -m docs.generate

clean:
	rm -rf $(VENV) demo

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "colabel needs Python 3.11 or newer; set PYTHON=python3.11 and remove $(VENV)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[offline,dev]"
	touch $(READY)
