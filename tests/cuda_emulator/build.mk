# tests/cuda_emulator/build.mk: the CUDA backend on the CPU, $(BUILD)/tests/vplan-cuda-emulated.so: the sources of kernels/cuda and stand-ins for
# CUDA's libraries, compiled as C and C++. Needs g++ or clang++; no CUDA. Included by the top Makefile, built with the tests.
EMULATOR      := tests/cuda_emulator
EMULATOR_DIR  := $(BUILD)/$(EMULATOR)
EMULATOR_CXX  ?= $(or $(shell command -v g++ 2> /dev/null),$(shell command -v clang++ 2> /dev/null),g++)
EMULATOR_CUDA := $(filter-out kernels/cuda/cudnn_query.c,$(wildcard kernels/cuda/*.c kernels/cuda/*.cu))
# What the plugin needs of base/ and plan/, as position-independent code.
EMULATOR_SHARED := base/err.c base/nvml.c base/text.c base/units.c plan/op.c plan/workspace.c
EMULATOR_LIBS := $(addprefix $(EMULATOR_DIR)/,block_emulator.o cublaslt_stand_in.o) $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard $(EMULATOR)/cuda_stand_in_*.cpp))

EMULATOR_OBJS := $(addprefix $(EMULATOR_DIR)/,$(addsuffix .o,$(basename $(EMULATOR_CUDA) $(EMULATOR_SHARED)))) $(EMULATOR_LIBS)

# Where cuDNN's stand-in is there, the plugin opens it in place of libcudnn, and NVML's in place of libnvidia-ml.
ifneq ($(wildcard $(EMULATOR)/cudnn_linked.c),)
EMULATOR_OBJS += $(addprefix $(EMULATOR_DIR)/,cudnn_linked.o nvml_stand_in.o) $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(EMULATOR)/cudnn_stand_in*.c))
EMULATOR_WRAP := -Wl,--wrap=dlopen,--wrap=dlsym,--wrap=dlclose
endif

# fmaf() as one instruction where this machine has it, with the same bits: called, it was a tenth of the tests' time.
EMULATOR_CPU  := $(if $(shell grep -om 1 ' fma ' /proc/cpuinfo 2> /dev/null),-mavx2 -mfma)
EMULATOR_FLAGS = -O2 -g $(EMULATOR_CPU) -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -U_FORTIFY_SOURCE -I. -I$(EMULATOR)/include
EMULATOR_C     = $(CC) $(CSTD) $(WARNINGS) $(EMULATOR_FLAGS)
EMULATOR_CPP   = $(EMULATOR_CXX) -std=c++17 -Wall -Wextra -Werror $(EMULATOR_FLAGS)
# Kernels trap where a device would fault: a misaligned vector, an index beyond a shared or local array.
EMULATOR_CU    = $(EMULATOR_CXX) -std=c++17 -Wall -Wno-unknown-pragmas $(EMULATOR_FLAGS) -fsanitize=alignment,bounds -fsanitize-undefined-trap-on-error

$(EMULATOR_DIR)/%.o: $(EMULATOR)/%.cpp
	@mkdir -p $(@D)
	$(call say,c++)
	$(Q)$(EMULATOR_CPP) -MMD -MP -c $< -o $@

$(EMULATOR_DIR)/%.o: $(EMULATOR)/%.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(EMULATOR_C) -MMD -MP -c $< -o $@

$(EMULATOR_DIR)/cublaslt_stand_in.o $(EMULATOR_DIR)/block_emulator.o: EMULATOR_FLAGS += -O3

$(EMULATOR_DIR)/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,c++)
	$(Q)$(EMULATOR_CU) -x c++ -MMD -MP -c $< -o $@

$(EMULATOR_DIR)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(EMULATOR_C) -MMD -MP -c $< -o $@

$(EMULATOR_DIR)/exports.map: $(EMULATOR)/build.mk
	@mkdir -p $(@D)
	@echo '{ global: vp_backend_open; local: *; };' > $@

$(BUILD)/tests/vplan-cuda-emulated.so: $(EMULATOR_OBJS) $(EMULATOR_DIR)/exports.map
	$(call say,link)
	$(Q)$(EMULATOR_CXX) -shared -Wl,--no-undefined -Wl,--version-script,$(EMULATOR_DIR)/exports.map $(EMULATOR_WRAP) -o $@ $(filter %.o,$^) \
	    -lpthread -ldl -lm

# The emulator's own tests: tests/test_cuda_emulator.sh.
$(EMULATOR_DIR)/emulator_test.o $(EMULATOR_DIR)/emulator_runtime_test.o: $(EMULATOR_DIR)/%.o: $(EMULATOR)/%.cpp
	@mkdir -p $(@D)
	$(call say,c++)
	$(Q)$(EMULATOR_CU) -MMD -MP -c $< -o $@

$(EMULATOR_DIR)/emulator_test: $(EMULATOR_DIR)/emulator_runtime_test.o
$(EMULATOR_DIR)/emulator_test $(EMULATOR_DIR)/cublaslt_test: %: %.o $(EMULATOR_LIBS)
	$(call say,link)
	$(Q)$(EMULATOR_CXX) -o $@ $^ -lcmocka -lpthread -lm

test-programs: $(BUILD)/tests/vplan-cuda-emulated.so $(EMULATOR_DIR)/emulator_test $(EMULATOR_DIR)/cublaslt_test
