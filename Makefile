# vplan: a GPU-memory-budget planner and autotuner for deep-learning training
#
# make             build vplan and vplan-run into build/
# make demo        install what is missing, build, and train GPT-2 124M inside a memory budget here
# make demo-offload  its second act: inside less than its parameters and optimizer states take
# make check       install what is missing, build, run every test that needs no GPU
# make check-gpu   the first three minutes on a machine with a GPU; tests/gpu_check.sh has the rest
# make check-long  the same with more random cases, fuzzing time and models
# make asan        check's C tests under address and undefined-behaviour sanitizers; asan-fast: those that take seconds
# make sanitize    the programs under these sanitizers over 1,000 changed plans and every model; CI=1 takes a hundredth
# make mutate      150 mistakes made one at a time: do the tests notice?
# make lint        clang-format, cppcheck and clang-tidy over the sources
# make bench-estimate  estimates of PyTorch's training steps beside other estimators' formulas, on played steps
# make bench       programs that time kernels, planner and a training step (PARTS="regret prediction": others); results to build/bench/
# make deps        install the Debian packages that are missing (sudo only when not root)
# make install     PREFIX=/usr/local: programs to bin and lib/vplan, the man page; DESTDIR before it
# make uninstall   removes what install put there
# make format      every C source in the style of .clang-format
# make man         docs/vplan.1 from docs/vplan.1.in and the commands' options
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
CFLAGS   += $(CSTD) $(OPT) -g $(WARNINGS) -ffp-contract=off -fno-strict-aliasing $(HARDEN) -fPIE -I. -Itests $(SANITIZE)
LDFLAGS  += $(SANITIZE)

# A mistake of ours in reading a file from anywhere should end the program, not run somebody's code. FORTIFY checks what the
# optimizer can measure; the sanitizers check more, and the two do not agree. tests/test_hardening.sh reads the programs.
FORTIFY   = $(if $(SANITIZE)$(filter -O0,$(OPT)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
HARDEN    = -fstack-protector-strong $(FORTIFY)
# Apart from LDFLAGS, which a command line may replace.
HARDEN_LD = -Wl,-z,relro,-z,now

objs = $(patsubst %.c,$(BUILD)/%.o,$(foreach dir,$(1),$(wildcard $(dir)/*.c)))

BASE    = $(BUILD)/base.a
PLAN    = $(BUILD)/plan.a
MODELS  = $(BUILD)/models.a
DEVICES = $(BUILD)/devices.a
PLANNER = $(BUILD)/planner.a
TRAINERS = $(BUILD)/trainers.a
KERNELS = $(BUILD)/kernels.a
RUNTIME = $(BUILD)/runtime.a
TUNER   = $(BUILD)/tuner.a
DRYRUN  = $(BUILD)/dryrun.a
REPORT  = $(BUILD)/report.a
DOCTOR  = $(BUILD)/doctor.a
ORACLE  = $(BUILD)/reference.a
STEPS   = $(BUILD)/lowering.a

PROGRAMS = $(BUILD)/vplan $(BUILD)/vplan-run $(BUILD)/vplan-solve

all: $(PROGRAMS)

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

# ---- libraries: a folder each; who may include whom is checked by tests/test_folders.sh ----

$(BASE): $(call objs,base)
$(PLAN): $(call objs,plan)
$(MODELS): $(call objs,models models/zoo)
$(DEVICES): $(call objs,devices)
# vplan-solve's own sources; the others of planner/solve are what both sides of its pipe share.
SOLVE_PROGRAM = $(addprefix $(BUILD)/planner/solve/,branch.o branch_node.o ilp_glpk.o main.o monolithic.o)
$(PLANNER): $(filter-out $(SOLVE_PROGRAM),$(call objs,planner planner/lowering planner/solve))
$(TRAINERS): $(call objs,trainers trainers/torch trainers/files trainers/hf trainers/fit)
$(KERNELS): $(call objs,kernels/cpu)
$(RUNTIME): $(filter-out $(BUILD)/runtime/main.o,$(call objs,runtime))
$(TUNER): $(call objs,tuner)
$(DRYRUN): $(call objs,dryrun)
$(REPORT): $(call objs,report)
$(DOCTOR): $(call objs,doctor)
$(ORACLE): $(call objs,kernels/reference)
$(STEPS): $(call objs,tests/lowering)

%.a:
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/kernels/%.o $(BUILD)/trainers/torch/%.o: OPT = -O3
$(BUILD)/kernels/%.o: CFLAGS += -fopenmp
$(BUILD)/tests/test_kernels%.o: CFLAGS += -fopenmp

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

# ---- programs: vplan links neither BLAS, GLPK nor CUDA, and of runtime/ a table of options; vplan-run links no planner; only vplan-solve links GLPK ----

$(BUILD)/vplan: $(call objs,cli) $(BUILD)/runtime/run_options.o $(DOCTOR) $(REPORT) $(DRYRUN) $(TUNER) $(TRAINERS) $(PLANNER) $(MODELS) $(DEVICES) $(PLAN) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -ljansson -lyaml -lsqlite3 -lm -pthread

$(BUILD)/vplan-run: $(BUILD)/runtime/main.o $(RUNTIME) $(KERNELS) $(PLAN) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -fopenmp -o $@ $(filter %.o,$^) $(filter %.a,$^) -lopenblas -ljansson -lm -ldl

$(BUILD)/vplan-solve: $(SOLVE_PROGRAM) $(BUILD)/planner/solve/problem.o $(BUILD)/planner/solve/chain_dp.o $(PLAN) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lglpk -ljansson -lm

include dryrun/stand_in/build.mk kernels/cuda/build.mk

# ---- recorded training steps, data of `vplan estimate --trainer torch`: beside the program ----

RECORDINGS = $(patsubst trainers/hf/recordings/%,$(BUILD)/recordings/%,$(wildcard trainers/hf/recordings/*.rec trainers/hf/recordings/*/*.rec))
all: $(RECORDINGS)
$(BUILD)/recordings/%: trainers/hf/recordings/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# ---- tests ----

include tests/cuda_emulator/build.mk

TEST_C  = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
TEST_SH = $(wildcard tests/test_*.sh)

# One program that makes every allocation fail once wraps the allocator at link time.
$(BUILD)/tests/test_alloc_faults: WRAP = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(STEPS) $(RUNTIME) $(KERNELS) $(ORACLE) $(DOCTOR) $(REPORT) $(DRYRUN) $(TUNER) $(TRAINERS) $(PLANNER) $(MODELS) $(DEVICES) $(PLAN) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -fopenmp $(WRAP) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lopenblas -ljansson -lyaml -lsqlite3 -lcmocka -lm -ldl

# In place of vplan-solve: one that lies, dies or hangs; never sanitized, it leaks as it pleases.
$(BUILD)/tests/solver_stand_in: tests/solver_stand_ins/solver_stand_in.c
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(CC) $(CSTD) -O1 -g $(WARNINGS) -I. -o $@ $< -ljansson

# Plays recorded traces: tests/allocator/README.md.
$(BUILD)/tests/allocator/allocator_replay: $(BUILD)/tests/allocator/allocator_replay.o $(TRAINERS) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -o $@ $^ -ljansson -lm

# Fuzz targets, tests/fuzz/README.md: with a main of their own, or with libFuzzer's and all it instruments (FUZZER=1, clang).
FUZZ_C = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
ifdef FUZZER
OPT       = -O1
SANITIZE  = -fsanitize=address,undefined,float-cast-overflow,fuzzer-no-link -fno-sanitize-recover=all
FUZZ_MAIN = -fsanitize=fuzzer
else
FUZZ_MAIN = $(BUILD)/tests/fuzz/replay.o
endif

$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/mutate.o $(filter %.o,$(FUZZ_MAIN)) $(DOCTOR) $(TRAINERS) $(PLANNER) $(MODELS) $(DEVICES) $(PLAN) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) $(filter -f%,$(FUZZ_MAIN)) -o $@ $(filter %.o,$^) $(filter %.a,$^) -ljansson -lyaml -lm

fuzz-programs: $(FUZZ_C)

test-programs: $(TEST_C) $(FUZZ_C) $(BUILD)/tests/solver_stand_in $(BUILD)/tests/allocator/allocator_replay

# CI=1, as .ci/run says: the linters too, and asan-fast, counted with the tests.
check: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all test-programs
	@$(if $(CI),$(MAKE) --no-print-directory asan-fast-programs)
	@BUILD=$(BUILD) CC=$(CC) $(if $(CI),SHARE=1/100) tests/run.sh $(if $(CI),scripts/lint.sh) $(TEST_C) $(FUZZ_C) $(if $(CI),$(ASAN_FAST) tests/sanitize.sh) $(TEST_SH)

check-long: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all test-programs
	@BUILD=$(BUILD) CC=$(CC) VPLAN_LONG=1 VPLAN_TEST_SECONDS=7200 tests/run.sh tests/fuzz/fuzz_long.sh $(TEST_C) $(FUZZ_C) $(TEST_SH)

check-gpu:
	@tests/gpu_check.sh

ASAN = $(MAKE) --no-print-directory -j$(JOBS) NVCC= BUILD=$(BUILD)/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"

# OpenBLAS and libgomp keep memory to the end of the process: leaks are looked for in the other tests.
asan: deps
	@$(ASAN) all test-programs
	@BUILD=$(BUILD)/asan tests/run.sh $(patsubst $(BUILD)/%,$(BUILD)/asan/%,$(TEST_C) $(FUZZ_C))

# SANITIZE_FOLDERS: more model configs and trainers' files; SHARE=3/40: a part.
sanitize: deps
	@$(ASAN) all
	@BUILD=$(BUILD) tests/sanitize.sh $(SANITIZE_FOLDERS)

lint: deps
	@scripts/lint.sh

mutate: deps
	@tests/mutate/mutate.py

# Part of CI=1: 80 s on two cores. ASAN_FAST leaves out what takes more than some 40 s, and two
# that do not go together with them: test_alloc_faults has an allocator of its own, test_study kills by the clock.
ASAN_SLOW = $(addprefix %/test_,planner plans solver search kernels_optimizer kernels_attention kernels_bits gemm_bf16 alloc_faults study)
ASAN_FAST = $(filter-out $(ASAN_SLOW),$(patsubst $(BUILD)/%,$(BUILD)/asan/%,$(TEST_C) $(FUZZ_C)))
asan-fast-programs:
	@$(ASAN) all $(ASAN_FAST) $(BUILD)/asan/tests/solver_stand_in

asan-fast: deps asan-fast-programs
	@BUILD=$(BUILD)/asan tests/run.sh $(ASAN_FAST)

$(BUILD)/bench/bench_allocator: $(BUILD)/bench/bench_allocator.o $(TRAINERS) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -o $@ $^ -ljansson -lm

bench: all
	@BUILD=$(BUILD) bench/run.sh $(PARTS)

bench-estimate: all
	@bench/estimate_peers.py --vplan $(BUILD)/vplan
	@bench/estimate_worlds.py --vplan $(BUILD)/vplan

# ---- set-up ----

PACKAGES = gcc libc6-dev libjansson-dev libopenblas-dev libcmocka-dev libglpk-dev libsqlite3-dev libyaml-dev python3

# Two compilers must give the same bytes: tests/test_determinism.sh. The CUDA sources are C++: tests/cuda_emulator.
check check-long: PACKAGES += clang g++
lint $(if $(CI),check): PACKAGES += clang-format clang-tidy cppcheck

deps:
	@scripts/deps.sh $(PACKAGES)

# Where there is a CUDA toolkit: for the GPU here, or for one architecture, not for all.
demo: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all CUDA_ARCHS="$$(scripts/cuda_arch.sh)"
	@BUILD=$(BUILD) scripts/demo.sh

demo-offload: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all CUDA_ARCHS="$$(scripts/cuda_arch.sh)"
	@BUILD=$(BUILD) scripts/demo_offload.sh

# Quoted: PREFIX and DESTDIR may hold spaces. Each build.mk adds what it builds.
BINDIR  = $(DESTDIR)$(PREFIX)/bin
LIBDIR  = $(DESTDIR)$(PREFIX)/lib/vplan
MANDIR  = $(DESTDIR)$(PREFIX)/share/man/man1

install: all
	install -d '$(BINDIR)' '$(LIBDIR)' '$(MANDIR)'
	install $(BUILD)/vplan '$(BINDIR)/'
	install $(filter-out $(BUILD)/vplan,$(PROGRAMS)) '$(LIBDIR)/'
	install -d '$(LIBDIR)/recordings'
	cp -R $(BUILD)/recordings/. '$(LIBDIR)/recordings/'
	chmod -R u=rwX,go=rX '$(LIBDIR)/recordings'
	install -m 644 docs/vplan.1 '$(MANDIR)/'

# lib/vplan is ours alone; the other folders are shared with everybody.
uninstall:
	rm -f '$(BINDIR)/vplan' '$(MANDIR)/vplan.1'
	rm -rf '$(LIBDIR)'

format:
	@scripts/deps.sh clang-format
	@git ls-files '*.c' '*.h' '*.cu' '*.cpp' | xargs clang-format -i

# The man page: written by hand but for the commands, which say what they take.
man: $(BUILD)/vplan
	@$(BUILD)/vplan help --man > $(BUILD)/commands.mdoc
	@sed -e '1d' -e '/^@commands@$$/{r $(BUILD)/commands.mdoc' -e 'd}' docs/vplan.1.in > docs/vplan.1

clean:
	rm -rf $(BUILD)

.PHONY: all help format lint sanitize mutate man test-programs fuzz-programs check check-gpu check-long asan asan-fast asan-fast-programs bench bench-estimate deps demo demo-offload install uninstall clean
.SECONDARY:

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
