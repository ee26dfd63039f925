# dryrun/stand_in/build.mk: the stand-in CUDA libraries of `vplan dryrun`. Included by the top Makefile.
#   $(BUILD)/null/libvplan-null.so   everything that is implemented, and the stubs
#   $(BUILD)/null/*.so.N             empty objects with the names PyTorch's libraries ask for
#   $(BUILD)/null/play-ranks         starts the ranks of a command
#   $(BUILD)/null/play-forked        one of several runs of a script, forked from a process that has imported its packages
#   $(BUILD)/null/bin/nvidia-smi     found first by the command
#   $(BUILD)/null/probe/             the Python text that is injected into the child
# Built with `all`, installed into lib/vplan/null with `install`. Needs gcc or clang and libc; no CUDA.
BUILD       ?= build
NULL_DIR    := $(BUILD)/null
NULL_SRC    := $(wildcard dryrun/stand_in/null_*.c)
NULL_PROBE  := $(wildcard dryrun/probe/*.py)
NULL_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden $(HARDEN) -I.

.PHONY: null install-null
null: $(NULL_DIR)/.done
all: null
install: install-null

install-null: null
	install -d '$(LIBDIR)/null/probe' '$(LIBDIR)/null/bin'
	install -m 755 $(NULL_DIR)/lib*.so* '$(LIBDIR)/null/'
	install -m 755 $(NULL_DIR)/play-ranks $(NULL_DIR)/play-forked '$(LIBDIR)/null/'
	install -m 755 $(NULL_DIR)/bin/nvidia-smi '$(LIBDIR)/null/bin/'
	install -m 644 $(NULL_DIR)/probe/*.py '$(LIBDIR)/null/probe/'

$(NULL_DIR)/gen_stubs: dryrun/stand_in/gen_stubs.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O1 -Wall -Wextra -Werror -o $@ $<

$(NULL_DIR)/stubs.c: $(NULL_DIR)/gen_stubs dryrun/stand_in/symbols.txt
	$(NULL_DIR)/gen_stubs dryrun/stand_in/symbols.txt > $@.tmp && mv $@.tmp $@

$(NULL_DIR)/libvplan-null.so: $(NULL_SRC) dryrun/stand_in/null_internal.h $(NULL_DIR)/stubs.c
	$(CC) $(NULL_CFLAGS) -shared $(HARDEN_LD) -Wl,-soname,libvplan-null.so -o $@.tmp $(NULL_SRC) $(NULL_DIR)/stubs.c \
	    -lpthread -ldl && mv $@.tmp $@

$(NULL_DIR)/play-ranks $(NULL_DIR)/play-forked: $(NULL_DIR)/play-%: dryrun/stand_in/play_%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -Wall -Wextra -Werror $(HARDEN) -o $@ $<

$(NULL_DIR)/bin/nvidia-smi: dryrun/stand_in/nvidia_smi.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -Wall -Wextra -Werror $(HARDEN) -o $@ $<

$(NULL_DIR)/.done: $(NULL_DIR)/libvplan-null.so $(NULL_DIR)/play-ranks $(NULL_DIR)/play-forked $(NULL_DIR)/bin/nvidia-smi dryrun/stand_in/sonames.txt $(NULL_PROBE)
	@mkdir -p $(NULL_DIR)/probe
	cp $(NULL_PROBE) $(NULL_DIR)/probe/
	@grep -v '^#' dryrun/stand_in/sonames.txt | while read -r name node; do \
	    : > $(NULL_DIR)/node.map; \
	    if [ "$$node" != - ]; then echo "$$node { };" > $(NULL_DIR)/node.map; script="-Wl,--version-script,$(NULL_DIR)/node.map"; \
	    else script=; fi; \
	    $(CC) -shared -nostdlib -Wl,-soname,$$name $$script -Wl,--no-as-needed -Wl,-rpath,'$$ORIGIN' \
	        -o $(NULL_DIR)/$$name $(NULL_DIR)/libvplan-null.so || exit 1; \
	done
	@rm -f $(NULL_DIR)/node.map
	@touch $@
