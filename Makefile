# Every target makes what it needs from a fresh clone: in .venv, or in .venv-demo what `demo` needs, without torch.
#
#   make test PYTHON=python3.12     another Python for .venv
#   make gpu-test PY=python3        no .venv: the named interpreter, which has torch, Triton and the test tools already
#   make test PIP_FLAGS="--extra-index-url URL"    more places for pip to look, such as PyTorch's index of CPU builds

PYTHON ?= python3
PIP_FLAGS ?=
PY ?=
TRITON_VERSIONS ?= 3.6.0 3.9.0

# Tests start hundreds of processes that import this package, which is quick where Python may keep its bytecode.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
STAMP := $(VENV)/.installed
DEMO := .venv-demo
DEMO_STAMP := $(DEMO)/.installed
EXTRAS := .venv-extras
EXTRAS_STAMP := $(EXTRAS)/.installed
SITE := 'import site; print(site.getsitepackages()[0])'
NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'

ifeq ($(strip $(PY)),)
RUN := $(VENV)/bin/python
OTHER := $(RUN)
READY := $(STAMP)
RUN_DEMO := $(DEMO)/bin/python
DEMO_READY := $(DEMO_STAMP)
RUN_EXTRAS := $(EXTRAS)/bin/python
EXTRAS_READY := $(EXTRAS)/engines
SIDE_BY_SIDE := -n auto --dist worksteal
else
RUN := PYTHONPATH="$(CURDIR)/src$${PYTHONPATH:+:$$PYTHONPATH}" $(PY)
OTHER := $(PY)
READY :=
RUN_DEMO := $(RUN)
DEMO_READY :=
RUN_EXTRAS := $(RUN)
EXTRAS_READY :=
SIDE_BY_SIDE :=
endif

.PHONY: help install demo test test-alone test-processes test-times test-extras test-bare shells test-triton-versions check lint types layers site pages docs launch-cost format gpu-test gpu-bench import-time clean
.DEFAULT_GOAL := help

help:  ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(READY)  ## Make .venv, if it is not there or older than what it is made from

# One stamp for each environment, so that nothing is installed twice. pip is brought up to a version that knows --group
# first. Bytecode is made here, with all CPUs, and not bound to the times of the sources: a copy of an environment has
# other times, and every process would compile a thousand modules of torch again. Some packages hold templates that end
# in .py and are no Python, so what compileall answers is not asked.
$(STAMP): WHAT := --group dev --editable '.[cli,gpu,remote,tune,docs]' --editable ./serving
$(DEMO_STAMP): WHAT := --editable '.[cli,tune,compile]'
$(EXTRAS_STAMP): WHAT := optuna --editable '.[ray]'
$(EXTRAS_STAMP): $(EXTRAS)/.beside
$(STAMP) $(DEMO_STAMP) $(EXTRAS_STAMP): %/.installed: pyproject.toml serving/pyproject.toml constraints.txt
	@set -e; begun=$$(date +%s); echo "installing into $*: $(WHAT)"; \
	$*/bin/python -m pip --version >/dev/null 2>&1 || { $(PYTHON) -c $(NEW_ENOUGH); $(PYTHON) -m venv $*; }; \
	$*/bin/python -m pip install -qq --constraint constraints.txt pip; \
	$*/bin/python -m pip install -qq $(PIP_FLAGS) --no-compile --constraint constraints.txt \
		--build-constraint constraints.txt $(WHAT); \
	$*/bin/python -m compileall -qq -j 0 --invalidation-mode unchecked-hash $*/lib || true; \
	touch $@; echo "installed in $$(($$(date +%s) - begun)) s; $* holds $$(du -sm $* | cut -f1) MiB"

demo: $(DEMO_READY)  ## The tour: the main commands at work; needs neither torch nor a GPU
	$(RUN_DEMO) -m triton_ops tour

TESTS := $(RUN) -m pytest --ignore=tests/docs --ignore=tests/gpu

test: $(READY)  ## Tests that need no GPU and start no Python process; the documents are part of `check`
	$(TESTS) $(SIDE_BY_SIDE:auto=logical) -m "not gpu and not processes and not extras"

# In copies of the checkout without the other packages; two at once, of which the core's takes as long as the others.
test-alone: $(READY)  ## A case of each of those tests again, of the core alone, and of each other package with the core alone
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target $(addprefix alone-,core kernels torch lab serving lint mcp)

alone-%:
	$(RUN) -m tests.alone $* --quiet -m "not gpu and not processes and not extras"

test-processes: $(READY)  ## Tests that start Python processes or forks, or compute for long
	$(TESTS) $(SIDE_BY_SIDE) -m "processes and not gpu and not extras"

test-times: $(READY)  ## The tests of `test`; each fails that takes more CPU seconds than they may
	$(TESTS) $(SIDE_BY_SIDE:auto=logical) -m "not gpu and not processes and not extras" --times

test-extras: $(EXTRAS_READY) shells  ## Tests with Ray, Optuna, other tuners and serving engines' files; a skip fails
	$(RUN_EXTRAS) -m pytest $(SIDE_BY_SIDE) -p tests.extras -m "extras and not gpu" --ignore=tests/docs

# Its Python also finds the files of engines, and what is in .venv, so that torch is installed once.
$(EXTRAS)/.beside: $(STAMP)
	rm -rf $(EXTRAS)
	$(RUN) -m venv $(EXTRAS)
	own=$$($(EXTRAS)/bin/python -c $(SITE)); printf 'import site; site.addsitedir("%s")\n' \
		"$(CURDIR)/$(EXTRAS)/engines" "$$($(RUN) -c $(SITE))" > "$$own/beside.pth"
	touch $@

# Of the engines' wheels, which need a GPU and hold 360 MiB, a list of files is fetched.
$(EXTRAS)/engines: $(EXTRAS_STAMP) benchmarks/tuning/engine_files.py
	@set -e; begun=$$(date +%s); rm -rf $@; \
	$(EXTRAS)/bin/python -m pip install -qq --no-deps --constraint constraints.txt --group extras; \
	$(EXTRAS)/bin/python -m pip install -qq --no-deps --constraint constraints.txt --group engines \
		--dry-run --ignore-installed --use-feature=fast-deps --report $(EXTRAS)/wheels.json; \
	$(EXTRAS)/bin/python -m benchmarks.tuning.engine_files $(EXTRAS)/wheels.json --out $(EXTRAS)/engines.tgz; \
	mkdir $@; tar -xzf $(EXTRAS)/engines.tgz -C $@; \
	echo "files of other projects fetched in $$(($$(date +%s) - begun)) s"

# Debian's, where this user may install them.
shells:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v fish && command -v zsh; } >/dev/null; then \
		echo "apt-get install fish zsh"; \
		{ apt-get -qq update && apt-get -qq install --no-install-recommends fish zsh; } >/dev/null 2>&1 || true; fi

test-bare: $(DEMO_READY)  ## A whole job where torch is not installed: NumPy, C++ and the command
	$(RUN_DEMO) -W error -m tests.bare

# Each version stands in a folder of its own before everything else that Python searches: torch is installed once.
# From 3.9 on Triton wants to be told whether products and sums may be fused; what it would do by itself changes in 3.10.
test-triton-versions: $(TRITON_VERSIONS:%=.triton/%)  ## The tests that use Triton, under each of TRITON_VERSIONS
	set -e; for version in $(TRITON_VERSIONS); do \
		echo "Triton $$version"; \
		PYTHONPATH="$(CURDIR)/.triton/$$version:$(CURDIR)/src" TRITON_DEFAULT_FP_FUSION=1 TRITON_OPS_EXPECT_TRITON=$$version \
			$(OTHER) -m pytest --quiet -m "triton and not gpu" tests/cpu; \
	done

.triton/%: $(READY)
	rm -rf $@
	$(OTHER) -m pip install -qq $(PIP_FLAGS) --no-deps --target $@ triton==$*
	touch $@

# Side by side, each with its output in one piece; what a launch costs is measured when all else has ended.
check: $(READY)  ## Style, types, floors, the site, code blocks of the documents, cost of a launch
	$(MAKE) --no-print-directory --jobs 3 --output-sync=target docs pages lint layers types
	$(MAKE) --no-print-directory launch-cost

lint: $(READY)
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check --quiet

types: $(READY)
	$(RUN) -m mypy

layers: $(READY)
	$(RUN) -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo

# It opens without a server: build/site/index.html. Every warning is an error, such as a link that leads nowhere.
site: $(READY)  ## The documents as a site in build/site, with references made from the code
	$(RUN) -m website

pages: site
	$(RUN) -m pytest --quiet tests/docs/test_site.py

# Fewer processes than CPUs would feed: each imports torch, and other targets of `check` run meanwhile.
docs: $(READY)
	$(RUN) -m pytest --quiet $(SIDE_BY_SIDE:auto=2) --ignore=tests/docs/test_site.py tests/docs

# Ratios of what the host does before a launch; the least of many rounds, so that other programs hardly count.
launch-cost: $(READY)  ## That a known launch costs at most the committed share of Triton's own
	TRITON_DEFAULT_FP_FUSION=1 $(RUN) -m benchmarks.launch_cost --check

format: $(READY)  ## Bring every file into the house's form
	$(RUN) -m ruff check --fix-only --quiet
	$(RUN) -m ruff format

gpu-test: $(READY)  ## The tests that need an NVIDIA GPU
	$(RUN) -m pytest -m gpu -o timeout=600

# It takes an hour or two; `python -m benchmarks.shipped.kernels_gpu --kernels NAME ...` measures a part, and merges it.
gpu-bench: $(READY)  ## The shipped kernels on this GPU, tuned, beside the vendor's library; fails where a limit is missed
	$(RUN) -m benchmarks.shipped.kernels_gpu $(if $(RECORDS),--cache-dir $(RECORDS))
	$(RUN) -m benchmarks.correctness.random_shapes --device cuda

import-time: $(READY)  ## What `import triton_ops` costs
	$(RUN) -m benchmarks.launch.start_up

clean:  ## Remove everything that these targets make
	rm -rf $(VENV) $(DEMO) $(EXTRAS) .triton build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
