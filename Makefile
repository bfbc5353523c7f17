# Everything runs in .venv, made once from pyproject.toml with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: venv demo test check bench verify fuzz clean

venv: .venv/stamp

.venv/stamp: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("ctmoments needs Python 3.11 or newer; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster,zarr,dev]'
	touch $@

demo: venv  ## learn mean and covariance of the SIR epidemic over its whole box, from 100,000 paths
	$(BIN)/ctmoments learn sir --budget 100000 --seed 1 --out runs/demo --overwrite
	@echo "look at runs/demo/map.png; ask: $(BIN)/ctmoments predict runs/demo alpha=.5 beta=.002"

test: venv  ## the routine tests and every example in a docstring
	$(BIN)/python -m pytest -q

check: venv  ## what must hold before a commit: lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python src

bench: venv  ## speed against scalar C, in one run
	$(BIN)/python benchmarks/run.py

verify: venv  ## the long statistics
	$(BIN)/python -m pytest -q -m "slow or verify"

fuzz: venv  ## every property test, with fresh random input and many more examples
	$(BIN)/python -m pytest -q -m hypothesis --hypothesis-profile=fuzz

clean:
	rm -rf .venv runs/demo benchmarks/build build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
