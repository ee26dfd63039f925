# kernels/cuda/build.mk: the CUDA backend, $(BUILD)/vplan-cuda.so, where there is a CUDA toolkit; and $(BUILD)/vplan-cudnn-query.
#   CUDA_HOME=dir      the toolkit (else /usr/local/cuda, else where nvcc is)
#   CUDA_ARCHS="90"    compute capabilities to compile for; the last one also as PTX, for devices to come. All seven take minutes; `make demo` compiles for
#                      the GPU here only
# Included by the top Makefile. cudart is linked statically, cuBLASLt dynamically; cuDNN is opened at run time if it is there. No path of
# this machine's toolkit stands in the plugin: runtime/plugin.c finds the toolkit of the machine it runs on.
# $(BUILD)/cuda/*.ptxas is the compiler's report of registers and spills: tests/test_cuda_build.sh reads it.
# It needs no toolkit: it opens cuDNN where it is installed.
$(BUILD)/vplan-cudnn-query: $(addprefix $(BUILD)/kernels/cuda/,cudnn_query.o attention_cudnn_graph.o cudnn_api.o) $(PLAN) $(BASE)
	$(call say,link)
	$(Q)$(CC) -pie $(HARDEN_LD) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -ljansson -ldl -lm

all: $(BUILD)/vplan-cudnn-query

NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2> /dev/null))

ifneq ($(NVCC),)
CUDA_ROOT  := $(abspath $(dir $(realpath $(NVCC)))..)
CUDA_ARCHS ?= 75 80 86 89 90 100 120
CUDA_DIR   := $(BUILD)/cuda
CUDA_LIB   := $(firstword $(wildcard $(CUDA_ROOT)/lib64 $(CUDA_ROOT)/targets/x86_64-linux/lib $(CUDA_ROOT)/lib))

CUDA_CU    := $(wildcard kernels/cuda/*.cu)
CUDA_C     := $(filter-out kernels/cuda/cudnn_query.c,$(wildcard kernels/cuda/*.c))
# What the plugin needs of base/ and plan/, once more as position-independent code.
CUDA_SHARED  := base/err.c base/nvml.c base/text.c base/units.c plan/op.c plan/workspace.c
CUDA_OBJS  := $(CUDA_CU:%.cu=$(CUDA_DIR)/%.cu.o) $(CUDA_C:%.c=$(CUDA_DIR)/%.o) $(CUDA_SHARED:%.c=$(CUDA_DIR)/%.o)

CUDA_CFLAGS = $(CSTD) -O2 -g $(WARNINGS) -ffp-contract=off -fno-strict-aliasing -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIC -fvisibility=hidden -I. -isystem $(CUDA_ROOT)/include
NVCC_FLAGS  = -std=c++17 -O3 -I. -Xcompiler -fPIC,-fvisibility=hidden,-fstack-protector-strong,-Wall -Werror all-warnings -Xptxas -v \
    $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
    -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))

all: $(BUILD)/vplan-cuda.so

$(CUDA_DIR)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(CC) $(CUDA_CFLAGS) -MMD -MP -c $< -o $@

# Objects are for these architectures: others are compiled anew.
$(CUDA_DIR)/archs: FORCE
	@mkdir -p $(@D)
	@echo '$(CUDA_ARCHS)' | cmp -s - $@ || echo '$(CUDA_ARCHS)' > $@

$(CUDA_DIR)/%.cu.o: %.cu $(CUDA_DIR)/archs
	@mkdir -p $(@D)
	$(call say,nvcc)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -c $< -o $@ > $(@:.o=.ptxas) 2>&1 || { cat $(@:.o=.ptxas); exit 1; }

$(BUILD)/vplan-cuda.so: $(CUDA_OBJS)
	$(call say,link)
	$(Q)$(CC) -shared $(HARDEN_LD) -Wl,-Bsymbolic -Wl,--no-undefined -Wl,--exclude-libs,ALL -o $@ $^ \
	    -L$(CUDA_LIB) -lcudart_static -lcublasLt -lstdc++ -ldl -lrt -lpthread -lm

install: install-cuda
install-cuda: $(BUILD)/vplan-cuda.so
	install -d '$(LIBDIR)'
	install -m 755 $(BUILD)/vplan-cuda.so '$(LIBDIR)/'
.PHONY: install-cuda FORCE
endif
