# vplan: a GPU-memory-budget planner and autotuner for deep-learning training
#
# make             build vplan and vplan-run into build/
# make demo        install what is missing, build, and train GPT-2 124M inside a memory budget here
# make check       install what is missing, build, run every test that needs no GPU
# make check-gpu   what needs a GPU, on the machine that has one: tests/gpu_check.sh
# make check-long  the same with more random cases, fuzzing time and models
# make asan        check's C tests under address and undefined-behaviour sanitizers
# make bench       programs that time kernels, planner and a training step (PARTS="regret prediction": others); results to build/bench/
# make deps        install the Debian packages that are missing (sudo only when not root)
# make install     PREFIX=/usr/local: programs to bin and lib/vplan
# make clean       remove build/
# make help        this list
#
# CC=clang builds with clang; BUILD=dir builds elsewhere; V=1 shows the commands.

BUILD  ?= build
# One short line for each file built, unless V=1.
say     = @$(if $(V),:,printf '  %-5s %s\n' $(1) $@)
Q       = $(if $(V),,@)
ifeq ($(origin CC),default)
CC      = gcc
endif
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)

OPT      ?= -O2
CSTD      = -std=c11 -D_GNU_SOURCE
WARNINGS  = -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
# Contraction into fused multiply-add would make results depend on the compiler.
CFLAGS   += $(CSTD) $(OPT) -g $(WARNINGS) -ffp-contract=off -fno-strict-aliasing -I. -Itests $(SANITIZE)
LDFLAGS  += $(SANITIZE)

objs = $(patsubst %.c,$(BUILD)/%.o,$(foreach dir,$(1),$(wildcard $(dir)/*.c)))

CORE    = $(BUILD)/core.a
MODELS  = $(BUILD)/models.a
PLANNER = $(BUILD)/planner.a
KERNELS = $(BUILD)/kernels.a
RUNTIME = $(BUILD)/runtime.a
TUNER   = $(BUILD)/tuner.a
ORACLE  = $(BUILD)/reference.a

PROGRAMS = $(BUILD)/vplan $(BUILD)/vplan-run $(BUILD)/vplan-solve

all: $(PROGRAMS)

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

# ---- libraries: a folder each; who may include whom is checked by tests/test_folders.sh ----

$(CORE): $(call objs,core)
$(MODELS): $(call objs,models models/zoo)
$(PLANNER): $(call objs,planner)
$(KERNELS): $(call objs,kernels/cpu)
$(RUNTIME): $(filter-out $(BUILD)/runtime/main.o,$(call objs,runtime))
$(TUNER): $(call objs,tuner)
$(ORACLE): $(call objs,kernels/reference)

%.a:
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/kernels/%.o: OPT = -O3
$(BUILD)/kernels/%.o: CFLAGS += -fopenmp
$(BUILD)/tests/test_kernels%.o: CFLAGS += -fopenmp

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

# ---- programs: vplan links neither BLAS, GLPK nor CUDA; vplan-run links no planner; only vplan-solve links GLPK ----

$(BUILD)/vplan: $(call objs,cli) $(TUNER) $(PLANNER) $(MODELS) $(CORE)
	$(call say,link)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -ljansson -lsqlite3 -lm

$(BUILD)/vplan-run: $(BUILD)/runtime/main.o $(RUNTIME) $(KERNELS) $(CORE)
	$(call say,link)
	$(Q)$(CC) $(LDFLAGS) -fopenmp -o $@ $(filter %.o,$^) $(filter %.a,$^) -lopenblas -ljansson -lm -ldl

$(BUILD)/vplan-solve: $(call objs,planner/solve) $(BUILD)/planner/problem.o $(BUILD)/planner/frontier_dp.o $(CORE)
	$(call say,link)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lglpk -ljansson -lm

include kernels/null/build.mk kernels/cuda/build.mk

# ---- tests ----

include tests/cuda_emulator/build.mk

TEST_C  = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
TEST_SH = $(wildcard tests/test_*.sh)

# One program that makes every allocation fail once wraps the allocator at link time.
$(BUILD)/tests/test_alloc_faults: WRAP = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(RUNTIME) $(KERNELS) $(ORACLE) $(TUNER) $(PLANNER) $(MODELS) $(CORE)
	$(call say,link)
	$(Q)$(CC) $(LDFLAGS) -fopenmp $(WRAP) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lopenblas -ljansson -lsqlite3 -lcmocka -lm -ldl

# In place of vplan-solve: one that lies, dies or hangs; never sanitized, it leaks as it pleases.
$(BUILD)/tests/solver_stand_in: tests/solver_stand_ins/solver_stand_in.c
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) $(CSTD) -O1 -g $(WARNINGS) -I. -o $@ $< -ljansson

# Fuzz targets, tests/fuzz/README.md: with a main of their own, or with libFuzzer's and all it instruments (FUZZER=1, clang).
FUZZ_C = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
ifdef FUZZER
OPT       = -O1
SANITIZE  = -fsanitize=address,undefined,float-cast-overflow,fuzzer-no-link -fno-sanitize-recover=all
FUZZ_MAIN = -fsanitize=fuzzer
else
FUZZ_MAIN = $(BUILD)/tests/fuzz/replay.o
endif

$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/mutate.o $(filter %.o,$(FUZZ_MAIN)) $(PLANNER) $(MODELS) $(CORE)
	$(call say,link)
	$(Q)$(CC) $(LDFLAGS) $(filter -f%,$(FUZZ_MAIN)) -o $@ $(filter %.o,$^) $(filter %.a,$^) -ljansson -lm

fuzz-programs: $(FUZZ_C)

test-programs: $(TEST_C) $(FUZZ_C) $(BUILD)/tests/solver_stand_in

check: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all test-programs
	@BUILD=$(BUILD) CC=$(CC) tests/run.sh $(TEST_C) $(FUZZ_C) $(TEST_SH)

check-long: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all test-programs
	@BUILD=$(BUILD) CC=$(CC) VPLAN_LONG=1 VPLAN_TEST_SECONDS=7200 tests/run.sh tests/fuzz/fuzz_long.sh $(TEST_C) $(FUZZ_C) $(TEST_SH)

check-gpu:
	@tests/gpu_check.sh

# OpenBLAS and libgomp keep memory to the end of the process: leaks are looked for in the other tests.
asan: deps
	@$(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all" all test-programs
	@BUILD=$(BUILD)/asan tests/run.sh $(patsubst $(BUILD)/%,$(BUILD)/asan/%,$(TEST_C) $(FUZZ_C))

bench: all
	@BUILD=$(BUILD) bench/run.sh $(PARTS)

# ---- set-up ----

PACKAGES = gcc libc6-dev libjansson-dev libopenblas-dev libcmocka-dev libglpk-dev libsqlite3-dev python3

# Two compilers must give the same bytes: tests/test_determinism.sh. The CUDA sources are C++: tests/cuda_emulator.
check check-long: PACKAGES += clang g++

deps:
	@scripts/deps.sh $(PACKAGES)

# Where there is a CUDA toolkit: for the GPU here, or for one architecture, not for all.
demo: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all CUDA_ARCHS="$$(scripts/cuda_arch.sh)"
	@BUILD=$(BUILD) scripts/demo.sh

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/vplan
	install $(BUILD)/vplan $(DESTDIR)$(PREFIX)/bin/
	install $(filter-out $(BUILD)/vplan,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/lib/vplan/
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 docs/vplan.1 $(DESTDIR)$(PREFIX)/share/man/man1/

clean:
	rm -rf $(BUILD)

.PHONY: all help test-programs fuzz-programs check check-gpu check-long asan bench deps demo install clean
.SECONDARY:

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
