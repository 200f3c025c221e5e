# Everything a fresh machine needs: `make demo` and `make test`. Both build their own environment in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BROWSER := $(VENV)/chromium/.ready

.PHONY: demo test slow docs check format bench soak wheel wheel-test clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(READY)  ## pretrain a small encoder with LoGo on made-up scenes and show that it learned
	$(BIN)/logo-ssl demo --out runs/demo

test: $(READY) $(BROWSER)  ## run every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(READY)  ## run the tests that are left out of `make test`, since they take long
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

check: $(READY)  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

docs: $(READY)  ## build the documentation into docs/_build/html; a broken link fails
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs docs/_build/html

format: $(READY)  ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## run the benchmarks; each prints one JSON line
	@for file in $(filter-out benchmarks/enlarge.py benchmarks/soak.py benchmarks/detection_check.py benchmarks/round_trip.py benchmarks/first_features.py benchmarks/l2l.py benchmarks/l2l_arms.py benchmarks/cpu_network.py benchmarks/distil.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$file || exit 1; done

soak: $(READY)  ## kill a small run fifty times and see that nothing is lost
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py 50

wheel: $(READY)  ## build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

wheel-test: wheel  ## install the wheel into an empty environment and run the demo there (minutes: it downloads torch)
	rm -rf build/empty && $(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd build && empty/bin/logo-ssl doctor && empty/bin/logo-ssl demo --out demo --epochs 2

clean:  ## remove the environment, caches and the demo; other runs stay
	rm -rf $(VENV) runs/demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist docs/_build docs/reference
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so an interrupted install starts again; a second `make test` installs nothing.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "LoGo needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Installing into $(VENV), which takes minutes, and 10 GB of disk while it runs."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]' || \
	  { echo "The install failed, for what is said above. It takes 10 GB of disk while it runs; free here: $$(df -Ph . | awk 'END { print $$4 }'), for temporary files: $$(df -Ph "$${TMPDIR:-/tmp}" | awk 'END { print $$4 }')."; exit 2; }
	@touch $@

# Where no browser can be had, tests of pages are left out, and the next `make test` looks again.
$(BROWSER): tools/chromium | $(READY)
	@tools/chromium $(VENV)/chromium
