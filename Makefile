# One command per task; each does its own set-up. See CONTRIBUTING.md.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
JOBS ?= $(shell nproc)

.PHONY: help setup dev demo test test-live replay test-versions gpu lint format bench bench-quick docs wheel aarch64 asan tsan fuzz clean
help:
	@echo "make demo    train three models with trouble in them, and see what trainperf says"
	@echo "make test    the tests, on every CPython found, in minutes      make test-live   the live trainings that it leaves out"
	@echo "make replay  judge recorded runs by today's rules, in seconds, and say what changed"
	@echo "make test-versions   the integrations on other versions of Lightning and transformers; free-threaded CPythons"
	@echo "make dev     build in place: then edits of Python need no build"
	@echo "make gpu     tests and measurements on a GPU; skipped, with the reason, where there is none"
	@echo "make lint    ruff, mypy, radon, clang-format, codespell   make format   apply their fixes"
	@echo "make bench   every figure with its target                  make bench-quick   roughly the same, in five minutes"
	@echo "make docs    the documentation, into build/site"
	@echo "make wheel   manylinux_2_28 wheels for x86_64 and aarch64, each imported and run, into wheelhouse/"
	@echo "make aarch64 C++ and native tests on aarch64, under qemu; skipped, with the reason, where that is missing"
	@echo "make asan    C++ and native tests under AddressSanitizer   make tsan    C++ tests under ThreadSanitizer"
	@echo "make fuzz    damaged traces, run files and buffers of CUPTI, each for FUZZ_SECONDS (600); C++ under AddressSanitizer"
	@echo "make clean   remove everything built (not .venv)"

setup:
	@scripts/setup.sh

dev: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

demo: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target _native
	@python examples/demo.py

test:
	@scripts/setup.sh --build
	@cmake --preset release >/dev/null
	@scripts/test.sh

test-live:
	@scripts/setup.sh --build
	@cmake --preset release >/dev/null
	@scripts/test.sh --live

replay: dev
	@python -m tests.replay

test-versions: dev
	@scripts/test_versions.sh
	@scripts/free_threaded.sh || [ $$? = 75 ]

gpu: dev
	@python -m pytest -q -rs tests/gpu
	@python benchmarks/gpu_overhead.py

lint: setup
	@scripts/lint.sh

format: setup
	ruff check --fix-only .
	ruff format .
	git ls-files '*.cc' '*.h' '*.c' | xargs clang-format -i

bench: dev
	@python benchmarks/run.py

bench-quick: dev
	@python benchmarks/run.py --quick --no-peers

docs: setup
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict
	@echo "build/site/index.html"

wheel:
	@scripts/setup.sh --build
	@scripts/wheel.sh $(WHEEL)

aarch64:
	@scripts/setup.sh --build
	@scripts/aarch64.sh

asan tsan: setup
	@scripts/sanitize.sh $@

fuzz: dev
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan -j $(JOBS) --target trainperf_trace_test trainperf_cuda_fuzz
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-600} setarch $$(uname -m) -R build/asan/cpp/trainperf/trace/trainperf_trace_test \
	  --gtest_filter='*SurvivesRandomDamage*'
	@PYTHONPATH=python python -m tests.fuzz $${FUZZ_SECONDS:-600}
	@setarch $$(uname -m) -R build/asan/cpp/trainperf/probe/cuda/trainperf_cuda_fuzz $${FUZZ_SECONDS:-600}

clean:
	rm -rf build dist wheelhouse python/trainperf/_native*.so
