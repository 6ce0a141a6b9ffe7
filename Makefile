# make demo: install, train the quickstart grid, print where to look.   make test: install, run the tests.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.installed-sweep
STAMP  := $(VENV)/.installed
FITS   := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.PHONY: demo test parity lint docs bench gpu chaos faults cluster-test clean

# The extra sweep is what running needs, dev also what the tests need.
$(DEMO): EXTRA = sweep
$(STAMP): EXTRA = dev
$(DEMO) $(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -c '$(FITS)' 2>/dev/null || $(PYTHON) -c '$(FITS)' || \
	{ echo "goal-sweep needs Python 3.11 to 3.13, $(PYTHON) is another: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(BIN)/python -c '$(FITS)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRA)]"
	touch $@

demo: $(DEMO)
	$(BIN)/goal-sweep launch quickstart.yaml
	@echo
	@echo "Report:    goal-sweep-store/reports/quickstart/report.html  (tables and heatmaps beside it)"
	@echo "MLflow UI: $(BIN)/goal-sweep ui quickstart.yaml"

# One thread for each process: the tests' products are so small that more would only wait for each other.
# Compiled modules are kept, wherever the environment says otherwise: the tests start many processes.
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Objectives, losses, pooling and recalls against the published code, whose checkouts PUBLISHED holds.
parity: $(STAMP)
	PUBLISHED="$(PUBLISHED)" OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/parity

# Random kills in real launches, at most 30 minutes. CHAOS="--seed 7 --minutes 10" sets the seed and the time.
chaos: $(STAMP)
	$(BIN)/python -m tests.helpers.chaos $(CHAOS)

# A fault at every file operation of a launch, and the slow tests of real launches: over an hour. FAULTS=200 tries so
# many operations of each kind.
faults: $(STAMP)
	$(BIN)/python -m pytest -m exhaustive -n 2

# Real clusters on this machine, about an hour. Skips what is not installed, and says so.
cluster-test: $(STAMP)
	$(BIN)/python -m pytest -m cluster -rA tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) docs

# The documents as a site, in site/. A page that no menu names, or a link that leads nowhere, is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The Python that has torch: $(PYTHON), or else that of the environment.
HAS_TORCH := from importlib.util import find_spec; exit(find_spec("torch") is None)
WITH_TORCH = $$($(PYTHON) -c '$(HAS_TORCH)' && echo $(PYTHON) || echo $(BIN)/python)

# Benchmarks on this machine, an hour or more. BENCH=ratios runs that one alone.
# Installs only where no Python has torch.
BENCH ?= ratios steps
bench:
	@$(WITH_TORCH) -c '$(HAS_TORCH)' || $(MAKE) $(STAMP)
	@set -e; for name in $(BENCH); do $(WITH_TORCH) -m benchmarks.$$name; done

# Proves a GPU, what takes longest first, within ten minutes, and leaves gpu.json in OUT. Needs goal_core's dependencies alone.
OUT ?= gpu-proof
gpu:
	$(WITH_TORCH) -m benchmarks.gpu --out $(OUT) $(GPU)

# Results stay.
clean:
	rm -rf $(VENV) site
