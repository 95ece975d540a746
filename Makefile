# SPDX-License-Identifier: Apache-2.0
# One non-recursive Makefile. `make help` lists the targets.
PREFIX  ?= /usr/local
B       ?= build/$(or $(SAN),release)
CFLAGS  ?= -O2 -g
DIRS    ?= base window bootstrap transport transport/tcp transport/sim topology gpu channel orchestrator
PKGS    := jansson libsodium libmnl libnftnl
XFLAGS  := -std=c11 -D_GNU_SOURCE -I. -fPIC -fvisibility=hidden -pthread -Wall -Wextra -Wshadow \
	-Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wvla -Wformat=2 -Wcast-function-type \
	$(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -DDR_DEBUG)
LDX     := -pthread $(if $(SAN),-fsanitize=$(SAN))
LIBS    := $(shell pkg-config --libs $(PKGS)) -lm
Q       := $(if $(filter 1,$(V)),,@)

SRCS      := $(filter-out %_test.c %/main.c,$(wildcard $(DIRS:%=%/*.c)))
TEST_SRCS := $(wildcard $(DIRS:%=%/*_test.c))
OBJS      := $(SRCS:%.c=$(B)/%.o)
TESTS     := $(TEST_SRCS:%.c=$(B)/%)

all: $(B)/dualrail
$(B)/libdualrail.a: $(OBJS)
	$(if $(Q),@echo "  AR    $@")
	$(Q)rm -f $@ && ar rcs $@ $(OBJS)
$(B)/dualrail: $(B)/orchestrator/main.o $(B)/libdualrail.a
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(LDX) $(LDFLAGS) -o $@ $^ $(LIBS)
$(B)/%.o: %.c $(B)/.flags
	$(if $(Q),@echo "  CC    $<")
	$(Q)mkdir -p $(@D) && $(CC) $(XFLAGS) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<
$(B)/%_test: $(B)/%_test.o $(B)/libdualrail.a
	$(if $(Q),@echo "  TEST  $@")
	$(Q)$(CC) $(LDX) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)
$(B)/.flags: FORCE
	$(Q)mkdir -p $(B); s='$(CC) $(XFLAGS) $(CFLAGS) $(LDFLAGS)'; \
	  [ "$$s" = "$$(cat $@ 2>/dev/null)" ] || echo "$$s" > $@
unit: $(TESTS)
	$(Q)f=0; for t in $(TESTS); do timeout 120 $$t || f=1; done; exit $$f
FORCE:
.PHONY: all unit FORCE
.SECONDARY:
-include $(OBJS:.o=.d) $(TESTS:=.d) $(B)/orchestrator/main.d
