# Two commands: `make listops` trains the demonstration and shows what it and the model that comes with the project
# make of an expression; `make test` runs the tests. Both set up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests start many programs, each of which would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup listops test browser campaign check docs format clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with make PYTHON=…")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[tasks,contextual,cluster,explore,docs,dev]'
	touch $@

listops: $(STAMP)
	$(BIN)/python -m tasks.listops train --preset demo --resume
	$(BIN)/python -m tasks.listops predict "[MAX 2 9 [MIN 4 7 ] 0 ]" \
		--checkpoint runs/listops/demo-ordered-memory-1/best.safetensors --heat-map runs/listops/heat_map.png
	$(BIN)/python -m tasks.listops predict "[MAX 2 [MIN 8 [SM 3 4 ] 9 ] [MED 1 5 6 ] 0 ]" \
		--heat-map runs/listops/heat_map_pretrained.png

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

# The viewer: types of its JavaScript, tests in Chromium. Needs npm and Chromium.
browser: $(STAMP) node_modules
	npm run --silent check
	$(BIN)/python -m pytest -m "browser and not slow" tests/browser

node_modules: package.json package-lock.json
	npm ci
	touch $@

campaign: $(STAMP)
	$(BIN)/python -m pytest -m slow
	MUTATIONS=100 $(BIN)/python -m pytest tests/test_mutations.py

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html or, with search: python -m http.server -d build/site"

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build node_modules *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
