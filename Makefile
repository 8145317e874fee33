# Every target works from a fresh clone with nothing activated: what it needs, it sets up first.
# Set-up is remembered in stamp files inside .venv, keyed on pyproject.toml, so the second run is fast.

VENV   := .venv
PYTHON := $(VENV)/bin/python
ARGS   ?=
# So many at once, a module at a time (tests/support/sharing_out.py); `make test WORKERS=0` is one process.
# Two of them start Sparks and wait for them often, and all wait for processes, so four keep two cores busy.
WORKERS ?= 4
# The part of its campaigns that `make stress` runs: a fifth, in some 90 minutes; PART=1 is all, in many hours.
PART ?= 0.2
# It writes here what it has done so far: each kill, and the end of each test. What has passed, and on which
# commit, is in $(STRESS_LOG).passed: `make stress ARGS=--again` continues a run that was ended.
STRESS_LOG ?= $(CURDIR)/stress.log

# The two set-ups: what the demo needs, and what development needs (which contains the first).
DEMO_READY := $(VENV)/.installed-demo
DEV_READY  := $(VENV)/.installed-dev
# Two more that only the site, the plots and a release need.
DOCS_READY := $(VENV)/.installed-docs
DIST_READY := $(VENV)/.installed-release
# What lets the Sparks of the tests start in half the time.
QUICK_SPARK := $(VENV)/.quick-spark
# What a server of Spark Connect takes, in a directory of its own.
CONNECT := $(VENV)/connect
S3_SERVER := $(VENV)/s3-server
TEST_READY := $(QUICK_SPARK) $(CONNECT)/.installed $(S3_SERVER)/.installed

# Java is looked up when a recipe runs, after .venv exists: .ci/java-home may have to install one there.
WITH_JAVA = JAVA_HOME="$$(.ci/java-home)" && export JAVA_HOME &&

# Hundreds of processes that the tests start, and Spark's Python workers, would compile the packages again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check lint types tidy bench stress versions format man site site-links plots dashboard-picture build dist-check clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(TEST_READY) ## Install what development and tests need; every other target does so, too

demo: $(DEMO_READY) ## Read a real RocketMQ store with Structured Streaming, stop midway, go on
	@$(WITH_JAVA) $(PYTHON) examples/demo.py $(ARGS)

test: $(TEST_READY) ## Run all tests (ARGS="-k name" picks some)
	@$(WITH_JAVA) $(PYTHON) -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(ARGS)

check: lint types test ## Lint, format check, types, layers, all tests: what CI runs

lint: $(DEV_READY) ## ruff: rules and formatting, changing nothing
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check

types: $(DEV_READY) ## mypy --strict
	@$(PYTHON) -m mypy

tidy: $(DEV_READY) ## Import directions, names, no print (seconds, no Java)
	@$(PYTHON) -m pytest -q tests/tidy

bench: $(DEV_READY) ## Run the benchmarks (ARGS="source query" picks some)
	@$(WITH_JAVA) $(PYTHON) -m tests.benchmarks $(ARGS)

stress: $(TEST_READY) ## Long runs: damaged bytes, crash images, kills, power cuts (PART=1 for all of them, ARGS=--again continues)
	@rm -f $(STRESS_LOG)
	@$(WITH_JAVA) HYPOTHESIS_PROFILE=stress STRESS_PART=$(PART) STRESS_LOG=$(STRESS_LOG) $(PYTHON) -m pytest -m "stress or hypothesis" \
		-n $(WORKERS) --dist loadscope --no-loadscope-reorder --timeout=7200 --durations=40 $(ARGS)

man: $(DEV_READY) ## Write docs/commitlog.1, the manual page, from the commands' help
	@$(VENV)/bin/commitlog --man > docs/commitlog.1

site: $(DOCS_READY) ## Build the documentation site into build/site/html; warnings are errors
	@$(PYTHON) -m docs.site

site-links: $(DOCS_READY) ## Look up the documentation's links to other hosts (needs a network)
	@$(PYTHON) -m docs.site --links

plots: $(DOCS_READY) ## Draw docs/pictures: the tables of docs/benchmarks.md, and what the demo prints
	@$(PYTHON) -m tests.benchmarks.plots
	@$(WITH_JAVA) $(PYTHON) -m docs.site.demo_picture

dashboard-picture: $(DOCS_READY) ## Draw docs/pictures/dashboard-*.png (needs playwright, and chromium in PATH)
	@$(PYTHON) -m docs.site.dashboard_picture

versions: $(DEV_READY) ## Tests in each version of Spark and Python, an hour or more (ARGS="spark-4.0" picks some)
	@$(PYTHON) -m tests.versions $(ARGS)

format: $(DEV_READY) ## Let ruff fix and format everything
	@$(PYTHON) -m ruff check --fix
	@$(PYTHON) -m ruff format

build: $(DEV_READY) ## Build the wheel and the source distribution into dist/
	@$(PYTHON) -m hatchling build

dist-check: $(DIST_READY) build ## Check dist/: metadata, contents, and an installation in an empty environment
	@$(PYTHON) -m tests.distribution

clean: ## Remove everything that set-up, builds and tests made
	rm -rf $(VENV) .venv-versions .java dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log $(STRESS_LOG) $(STRESS_LOG).passed
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@python=$$(.ci/find-python) && echo "Creating $(VENV) with $$python" && "$$python" -m venv $(VENV)

$(DEMO_READY): pyproject.toml | $(PYTHON)
	@echo "Installing pyspark-commitlog and PySpark into $(VENV); the first time this takes a minute or two"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[spark]'
	@touch $@

$(DEV_READY): pyproject.toml | $(PYTHON)
	@echo "Installing pyspark-commitlog and what its tests need into $(VENV); the first time this takes a minute or two"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(DEMO_READY) $@

$(DOCS_READY): pyproject.toml | $(PYTHON)
	@echo "Installing what the documentation site needs into $(VENV)"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(DEMO_READY) $@

$(DIST_READY): pyproject.toml | $(PYTHON)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

$(QUICK_SPARK): $(DEV_READY) tests/support/quick_spark.py
	@echo "Preparing a Spark that starts faster, for the tests alone"
	@$(WITH_JAVA) $(PYTHON) -m tests.support.quick_spark || echo "That did not work; the tests will do without it"
	@touch $@

$(CONNECT)/.installed: tests/connector/sink/connect-requirements.txt | $(DEV_READY)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target $(CONNECT) --requirement $<
	@touch $@

$(S3_SERVER)/.installed: tests/store/archive/s3-requirements.txt | $(DEV_READY)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target $(S3_SERVER) --requirement $<
	@touch $@
