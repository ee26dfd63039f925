# kernels/null/build.mk: the stand-in CUDA libraries of `vplan dryrun`. Included by the top Makefile.
#   $(BUILD)/null/libvplan-null.so   everything that is implemented, and the stubs
#   $(BUILD)/null/*.so.N             empty objects with the names PyTorch's libraries ask for
#   $(BUILD)/null/probe/             the Python text that is injected into the child
# Built with `all`, installed into lib/vplan/null with `install`. Needs gcc or clang and libc; no CUDA.
BUILD       ?= build
NULL_DIR    := $(BUILD)/null
NULL_SRC    := $(addprefix kernels/null/,null_device.c null_memory.c null_runtime.c null_driver.c \
                 null_nvml.c null_blas.c null_nccl.c null_cudnn.c null_misc.c)
NULL_PROBE  := $(wildcard kernels/null/probe/*.py)
NULL_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -I.

.PHONY: null install-null
null: $(NULL_DIR)/.done
all: null
install: install-null

install-null: null
	install -d $(DESTDIR)$(PREFIX)/lib/vplan/null/probe
	install -m 755 $(NULL_DIR)/lib*.so* $(DESTDIR)$(PREFIX)/lib/vplan/null/
	install -m 644 $(NULL_DIR)/probe/*.py $(DESTDIR)$(PREFIX)/lib/vplan/null/probe/

$(NULL_DIR)/gen_stubs: kernels/null/gen_stubs.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O1 -Wall -Wextra -Werror -o $@ $<

$(NULL_DIR)/stubs.c: $(NULL_DIR)/gen_stubs kernels/null/symbols.txt
	$(NULL_DIR)/gen_stubs kernels/null/symbols.txt > $@.tmp && mv $@.tmp $@

$(NULL_DIR)/libvplan-null.so: $(NULL_SRC) kernels/null/null_internal.h $(NULL_DIR)/stubs.c
	$(CC) $(NULL_CFLAGS) -shared -Wl,-soname,libvplan-null.so -o $@.tmp $(NULL_SRC) $(NULL_DIR)/stubs.c \
	    -lpthread -ldl && mv $@.tmp $@

$(NULL_DIR)/.done: $(NULL_DIR)/libvplan-null.so kernels/null/sonames.txt $(NULL_PROBE)
	@mkdir -p $(NULL_DIR)/probe
	cp $(NULL_PROBE) $(NULL_DIR)/probe/
	@grep -v '^#' kernels/null/sonames.txt | while read -r name node; do \
	    : > $(NULL_DIR)/node.map; \
	    if [ "$$node" != - ]; then echo "$$node { };" > $(NULL_DIR)/node.map; script="-Wl,--version-script,$(NULL_DIR)/node.map"; \
	    else script=; fi; \
	    $(CC) -shared -nostdlib -Wl,-soname,$$name $$script -Wl,--no-as-needed -Wl,-rpath,'$$ORIGIN' \
	        -o $(NULL_DIR)/$$name $(NULL_DIR)/libvplan-null.so || exit 1; \
	done
	@rm -f $(NULL_DIR)/node.map
	@touch $@
