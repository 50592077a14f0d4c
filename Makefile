# Two commands do everything on a fresh Debian 12: `make demo` trains, `make test` tests.
SHELL := /bin/bash
VENV := .venv/bin
# All that goes into the package: when one of these changes, the package in .venv is built again.
SOURCES := $(shell find runtime rendezvous starters launcher python cmake -type f -not -name '*.pyc' 2>/dev/null) \
           CMakeLists.txt pyproject.toml
INSTALLED := build/.installed

.PHONY: help demo test test-quick test-slow chaos test-sanitizers test-torch test-tensorflow test-matrix test-mxnet test-spark test-gpu carry-gpu test-arm64 wheel-arm64 setup-demo setup-test install wheel bench lint format tidy coverage fuzz clean

help:
	@echo "make demo        train the digits example on two ranks"
	@echo "make test        run the test suites         make test-quick  the suites that answer in two minutes"
	@echo "make test-slow   the long suites             make fuzz        libFuzzer, 60 s a target (needs clang)"
	@echo "make chaos       elastic jobs with 2500 faults at a mean of 5 s; goes on where build/chaos.jsonl ends"
	@echo "make test-sanitizers  the C++ and launcher suites under ASan+UBSan and under TSan"
	@echo "make test-torch  only PyTorch's suites        make test-tensorflow  only TensorFlow's and Keras'"
	@echo "make test-matrix  TensorFlow's and Keras' tests with one wheel on TensorFlow 2.15, 2.16, 2.18 and 2.21"
	@echo "make test-mxnet  MXNet's tests with the wheel, in an environment with the old numpy that MXNet needs"
	@echo "make test-spark  horovod.spark on a real Spark (pyspark in an environment of its own, Java)"
	@echo "make test-gpu    what needs a GPU, with PYTHON=... that has torch, in SECONDS=...; make carry-gpu packs for it"
	@echo "make test-arm64  compile for arm64 and run C++ and torch tests emulated, as root; on a real arm64: make test"
	@echo "make wheel-arm64 a wheel for arm64, compiled here, as root"
	@echo "make bench       ours against its peers      make wheel       a self-contained wheel in dist/, PYTHON=..."
	@echo "make lint        types, style, includes      make install     build and install into .venv"
	@echo "make format      clang-format over all C++"
	@echo "make tidy        clang-tidy, a long build    make coverage    lines that the C++ tests run, per folder"

demo: setup-demo $(INSTALLED)
	$(VENV)/horovodrun -np 2 $(VENV)/python examples/pytorch_digits.py

test: setup-test $(INSTALLED)
	$(VENV)/python scripts/suites.py full

test-quick: setup-test $(INSTALLED)
	$(VENV)/python scripts/suites.py quick

test-slow: setup-test $(INSTALLED)
	$(VENV)/python scripts/suites.py slow

CHAOS := HVD_CHAOS_LOG=$(CURDIR)/build/chaos.jsonl HVD_CHAOS_FAULTS=2500 HVD_CHAOS_MEAN=5 HVD_CHAOS_SECONDS=100000
chaos: setup-test $(INSTALLED)
	$(CHAOS) $(VENV)/python -m pytest test/e2e/elastic/test_elastic_oracle.py -k for_minutes -q -s

test-sanitizers: setup-test $(INSTALLED)
	$(VENV)/python scripts/suites.py sanitizers

test-torch: setup-test $(INSTALLED)
	$(VENV)/python scripts/suites.py torch

test-tensorflow: setup-test $(INSTALLED)
	$(VENV)/python scripts/suites.py tensorflow

# Needs no build here: PYTHON is one that has torch, and the wheel installed or what carry-gpu makes in build/gpu. Ends
# after SECONDS.
PYTHON ?= $(VENV)/python
test-gpu:
	$(PYTHON) test/gpu/run.py $(if $(SECONDS),--seconds $(SECONDS))

# The package for PYTHON and what it imports but torch, as `make test-gpu` finds it without a network.
carry-gpu: wheel
	rm -rf build/gpu
	$(PYTHON) -m pip install -q --disable-pip-version-check --target build/gpu "$$(ls -1t dist/horovod_gloo-*.whl | head -1)"
	du -sh build/gpu

test-matrix: wheel
	$(VENV)/python scripts/matrix.py

test-mxnet: wheel
	$(VENV)/python scripts/environment_tests.py mxnet

test-spark: wheel
	$(VENV)/python scripts/environment_tests.py spark

test-arm64: setup-test
	scripts/arm64.sh

wheel-arm64: setup-test
	scripts/arm64.sh scripts/wheel.sh arm64

lint: setup-test
	$(VENV)/python scripts/suites.py lint

format: setup-test
	git ls-files -z '*.h' '*.cc' '*.inc' | xargs -0 $(VENV)/clang-format -i

bench: setup-test $(INSTALLED)
	cmake --preset release >/dev/null && cmake --build --preset release
	$(VENV)/python bench/run.py

tidy: setup-test
	scripts/clang.sh clang-14 clang-tidy-14
	cmake --preset tidy && cmake --build --preset tidy

coverage: setup-test
	cmake --preset coverage >/dev/null && cmake --build --preset coverage
	find build/coverage -name '*.gcda' -delete
	ctest --preset coverage -LE slow
	$(VENV)/python scripts/coverage.py

fuzz: setup-test
	scripts/fuzz.sh

wheel: setup-demo
	PYTHON=$(PYTHON) scripts/wheel.sh

install: setup-demo $(INSTALLED)

setup-demo:
	@scripts/setup.sh demo

setup-test:
	@scripts/setup.sh test

$(INSTALLED): $(SOURCES)
	@mkdir -p build
	@scripts/progress.sh "Horovod's package" $(VENV)/pip install -v --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
	@touch $@

clean:
	rm -rf build dist wheelhouse
