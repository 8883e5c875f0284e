# SPDX-License-Identifier: Apache-2.0
#
# The doors of the house. What is missing on the machine is installed first, by scripts/deps.

PREFIX ?= /usr/local
SUITES := unit unit-sanitized fuzz interop keeper integration crash cli escape integration-sanitized conformance \
	go python typescript house contract vm spec
C_FILES = find src include tests bench -path src/contract -prune -o -name '*.[ch]' -print 2>/dev/null

.PHONY: help run build deps test $(SUITES:%=test-%) bench soak soak-files \
	format lint generate install clean distclean

help:
	@echo 'make run              build hutch and run a command in a sandbox'
	@echo 'make test             run every test'
	@echo 'make test-SUITE       run one suite: $(SUITES)'
	@echo 'make test-vm          run the suite vm in its long form: more tests in a virtual machine, half an hour'
	@echo 'make bench            run the benchmarks'
	@echo 'make soak             abuse 300 sandboxes for some minutes, and watch the daemon'
	@echo 'make soak-files       move much, and race for files for minutes'
	@echo 'make format           format the C sources in place'
	@echo 'make lint             check the tree: format, clang-tidy, includes, the contract'
	@echo 'make generate         regenerate the code made from proto/'
	@echo 'make install          install into DESTDIR and PREFIX ($(PREFIX))'
	@echo 'make clean            remove what was built, keep the tools'
	@echo 'make distclean        remove build/ altogether'

run:
	@scripts/deps build
	scripts/build gcc hutch hutchd hutch-keeper
	scripts/run

build: deps
	scripts/build gcc

deps:
	@scripts/deps

test: deps
	scripts/test

$(filter-out test-vm,$(SUITES:%=test-%)): test-%: deps
	scripts/test $*

# The long form; `make test` has the short one.
test-vm: deps
	scripts/test-vm

bench:
	@scripts/deps bench
	bench/run

soak: build
	bash -c '. scripts/env && tests/soak/abuse.py $(if $(MINUTES),--minutes $(MINUTES))'

soak-files: build
	bash -c '. scripts/env && export HUTCH_FILES_LONG=1 HUTCH_RACE_SECONDS=60 HUTCH_TEST_PATIENCE=30 && \
		pytest tests/integration/test_file_moments.py && pytest tests/keeper/test_file_races.py'

format: deps
	$(C_FILES) | xargs clang-format -i

lint: deps
	scripts/test house contract

generate: deps
	scripts/generate

install: deps
	PREFIX='$(PREFIX)' scripts/build release
	meson install -C build/release --no-rebuild $(if $(DESTDIR),--destdir '$(abspath $(DESTDIR))')

clean:
	find build -mindepth 1 -maxdepth 1 ! -name tools -exec rm -rf {} + 2>/dev/null || true

distclean:
	rm -rf build
