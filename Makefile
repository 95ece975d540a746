# SPDX-License-Identifier: Apache-2.0
# One non-recursive Makefile. `make help` lists the targets.
#
#   SAN=address,undefined   a sanitizer build, in a tree of its own, with the debug assertions
#   WERROR=1  V=1  B=DIR    warnings are errors; show commands; where to build
#   HARDEN=no               without the flags for a hardened program, to measure their cost
#   DIRS="base window"      only these folders
#
# Files are found by name: D/X_test.c is a test, part of the program D/tests and run as D/X_test, a link to it;
# tests/D/X_main.c is a program and tests/D/X_plugin.c a shared object that tests use; other files in tests/D/
# are linked into the tests and programs there. tests/fuzz/X_fuzz.c is a fuzz target.
VERSION := $(shell cat VERSION)
SOMAJOR := 0
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
LIBDIR  ?= $(PREFIX)/lib
# Of its own, since a program that finds a libnccl-net.so loads it.
NCCLDIR ?= $(LIBDIR)/dualrail
INCDIR  ?= $(PREFIX)/include
MANDIR  ?= $(PREFIX)/share/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
DOCDIR  ?= $(PREFIX)/share/doc/dualrail
# Where the shells look for completion scripts.
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
B       ?= build/$(or $(SAN),release)
# Sanitizers need little optimisation and line numbers alone; both halve the time of their builds.
CFLAGS  ?= $(if $(SAN),-O1 -g1,-O2 -g)
LAYERS  := base detect window bootstrap transport topology gpu channel library orchestrator plugin
DIRS    ?= $(sort $(patsubst %/,%,$(dir $(wildcard $(LAYERS:%=%/*.c) $(LAYERS:%=%/*/*.c)))))
PKGS    := jansson libsodium libmnl libnftnl libmicrohttpd hwloc numa
XFLAGS  := -std=c11 -D_GNU_SOURCE -DDR_VERSION='"$(VERSION)"' -I. -fPIC -fno-semantic-interposition \
	-pthread -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wvla \
	-Wformat=2 -Wcast-function-type $(if $(WERROR),-Werror) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -DDR_DEBUG)
LDX     := -pthread -Wl,--as-needed $(if $(SAN),-fsanitize=$(SAN))
# HARDEN_CC and HARDEN_LD are found in hardening.mk: what of this the compiler and the linker know. HARDEN=no leaves it out.
# A sanitizer has checks of its own in the place of _FORTIFY_SOURCE, which does nothing without optimisation.
HARDEN_TRY_CC := -fstack-protector-strong -fstack-clash-protection -fcf-protection=full
HARDEN_TRY_LD := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-z,separate-code
LDHARD   = $(LDX) $(HARDEN_LD)
PROGLDX  = $(HARDEN_PIE) $(LDHARD)
SOLDX    = -shared $(LDHARD) $(if $(SAN),,-Wl,-z,defs)
Q       := $(if $(filter 1,$(V)),,@)
SAY      = $(if $(Q),@printf '  %-5s %s\n' $(1) $(2))

IS_TEST   := %_test.c %_main.c %_plugin.c %_fuzz.c %/main.c
SRCS      := $(filter-out $(IS_TEST) tests/%,$(wildcard $(DIRS:%=%/*.c)))
LIB_OBJS  := $(patsubst %.c,$(B)/%.o,$(filter-out orchestrator/% plugin/%,$(SRCS)))
ORCH_OBJS := $(patsubst %.c,$(B)/%.o,$(filter orchestrator/%,$(SRCS)))
PLUG_OBJS := $(patsubst %.c,$(B)/%.o,$(filter plugin/%,$(SRCS)))
OBJS      := $(LIB_OBJS) $(ORCH_OBJS) $(PLUG_OBJS)
# A DIRS given from outside names folders of tests/ too, if they are wanted.
ALL_DIRS  := $(if $(filter file,$(origin DIRS)),1)
TEST_DIRS := $(if $(ALL_DIRS),$(sort $(patsubst %/,%,$(dir $(wildcard tests/*/*.c)))),$(filter tests/%,$(DIRS)))
TEST_SRCS := $(wildcard $(filter-out tests/%,$(DIRS:%=%/*_test.c)) $(TEST_DIRS:%=%/*_test.c))
# Tests of code that starts threads or loads libraries; the others can show no race.
THREADED  := $(addsuffix _test.c,base/poller base/privileges base/queue channel/peer_thread) $(addsuffix /%,gpu \
	library orchestrator/engine plugin transport/ncclnet transport/verbs tests/conformance tests/plugins) tests/fake%
TEST_SRCS := $(if $(filter thread,$(SAN)),$(filter $(THREADED),$(TEST_SRCS)),$(TEST_SRCS))
TESTS     := $(TEST_SRCS:%.c=$(B)/%)
# Tests that replace a function of libc or of the program are linked alone, the others into one program for each folder.
OWN_TESTS := $(filter $(addprefix $(B)/,base/packet_test bootstrap/io_test bootstrap/io_end_test bootstrap/rdv_test \
	bootstrap/rdv_break_test orchestrator/engine/worker_ping_test tests/fuzz/replay_test),$(TESTS))
DIR_TESTS := $(filter-out $(OWN_TESTS),$(TESTS))
AID_SRCS  := $(wildcard $(TEST_DIRS:%=%/*_main.c) $(TEST_DIRS:%=%/*_plugin.c))
AIDS      := $(patsubst %_main.c,$(B)/%_main,$(filter %_main.c,$(AID_SRCS))) \
	$(patsubst %_plugin.c,$(B)/%_plugin.so,$(filter %_plugin.c,$(AID_SRCS)))
FUZZERS   := $(patsubst %.c,$(B)/%,$(if $(filter tests/fuzz,$(TEST_DIRS)),$(wildcard tests/fuzz/*_fuzz.c)))
PLUGIN    := $(B)/libnccl-net-ha.so
# The names by which NCCL and RCCL look for a plugin when NCCL_NET_PLUGIN is not set.
NCCL_LINKS := libnccl-net.so librccl-net.so
ARCHIVES  := $(B)/orchestrator.a $(B)/libdualrail.a
# README.md and the documents keep their places to each other, for their links.
DOCS      := README.md CHANGELOG.md SECURITY.md LICENSE $(wildcard docs/*.md docs/images/* docs/screens/*) \
	$(wildcard docs/examples/*.c docs/examples/kvblocks/*.*) \
	$(sort $(shell find k8s scripts/slurm scripts/metrics -type f 2>/dev/null))
# Of the files of others in the report page.
NOTICES   := orchestrator/checks/report/uPlot.LICENSE
# The interface of libdualrail.so, which exports what it declares.
HEADERS   := library/dualrail.h
ALL_SRCS  := $(SRCS) $(wildcard orchestrator/main.c) $(TEST_SRCS) $(AID_SRCS)
comma     := ,
SONAME    := libdualrail.so.$(SOMAJOR)

all: $(B)/dualrail $(B)/libdualrail.so $(PLUGIN) ## build the program, the library and the NCCL plugin (default)

# Found once for a build tree, before anything else is read. A missing package ends make with the command that installs
# it. The targets that install packages themselves start another make for what they build.
NO_DEPS := help clean uninstall setup deb rpm check-deb check-packages check lint nightly fuzz mutants mutate coverage check-outside check-attack check-attack-long check-lab plugin-cycles image
ifneq ($(or $(filter-out $(NO_DEPS),$(MAKECMDGOALS)),$(if $(MAKECMDGOALS),,all)),)
HARDENING := $(B)/hardening$(HARDEN:%=-%)-$(subst /,_,$(subst $() ,_,$(CC))).mk
include $(B)/pkg.mk $(HARDENING)
endif
FORTIFY := $(if $(or $(SAN),$(filter -O0,$(CFLAGS)),$(findstring _FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS))),,$(HARDEN_FORTIFY))
HARDEN_FLAGS := $(HARDEN_CC) $(FORTIFY)
$(B)/pkg.mk: Makefile scripts/setup.sh
	@scripts/setup.sh --check build >&2
	@mkdir -p $(@D) && c=$$(pkg-config --cflags $(PKGS)) && l=$$(pkg-config --libs $(PKGS)) && \
	  v=$$(for p in $(PKGS); do printf ', %s %s' $$p $$(pkg-config --modversion $$p); done) && \
	  printf 'PKG_CFLAGS := %s\nPKG_LIBS := %s\nPKG_VERSIONS := %s\n' "$$c" "$$l" "$${v#, }" > $@.$$$$ && mv $@.$$$$ $@
# A flag that the compiler or the linker does not know is left out.
$(B)/hardening%.mk: Makefile scripts/hardening.sh $(B)/pkg.mk
	@mkdir -p $(@D) && HARDEN='$(HARDEN)' scripts/hardening.sh '$(CC)' '$(HARDEN_TRY_CC)' '$(HARDEN_TRY_LD)' > $@.$$$$ && mv $@.$$$$ $@
LIBS = $(PKG_LIBS) -lm -ldl

$(B)/libdualrail.a: $(LIB_OBJS)
$(B)/orchestrator.a: $(ORCH_OBJS)
$(ARCHIVES):
	$(call SAY,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && ar rcs $@ $(filter %.o,$^)
$(B)/dualrail: $(B)/orchestrator/main.o $(ARCHIVES)
	$(call SAY,LD,$@)
	$(Q)$(CC) $(PROGLDX) $(LDFLAGS) -o $@ $^ $(LIBS)
$(B)/libdualrail.map: $(HEADERS) scripts/exports.sh
	$(Q)mkdir -p $(@D) && CC='$(CC)' scripts/exports.sh map $(HEADERS) >$@
$(B)/$(SONAME): $(LIB_OBJS) $(B)/libdualrail.map
	$(call SAY,LD,$@)
	$(Q)$(CC) $(SOLDX) -Wl,-soname,$(SONAME) -Xlinker --version-script=$(B)/libdualrail.map $(LDFLAGS) -o $@ \
	  $(LIB_OBJS) $(LIBS)
$(B)/libdualrail.so: $(B)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@
# dlopened by NCCL: nothing exported but the plugin's tables. Never unmapped: versions 6 to 10 of the interface do not tell
# when the plugin's threads have to end. NCCL 2.28 and 2.29 forget the file of a plugin that they unloaded after the last
# communicator, and ask the loader for libnccl-net.so (github.com/NVIDIA/nccl/issues/1978): the soname makes it find this one.
PLUG_LD := -Wl,-z,nodelete -Wl,-soname,libnccl-net.so
$(PLUGIN): $(PLUG_OBJS) $(B)/libdualrail.a plugin/libnccl-net-ha.map
	$(call SAY,LD,$@)
	$(Q)$(CC) $(SOLDX) $(PLUG_LD) -Wl,--version-script=plugin/libnccl-net-ha.map $(LDFLAGS) -o $@ \
	  $(PLUG_OBJS) $(B)/libdualrail.a $(LIBS)

$(B)/%.o: %.c $(B)/.flags
	$(call SAY,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(XFLAGS) $(PKG_CFLAGS) $(HARDEN_FLAGS) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $< $(RENAME)
$(DIR_TESTS:=.o): private RENAME = && objcopy --redefine-sym main=$(*F)_main $@
# The compiler does not tell which files it includes.
$(B)/orchestrator/checks/report_assets.o: $(wildcard orchestrator/checks/report/*.js orchestrator/checks/report/*.css)
$(B)/.flags: FORCE
	$(Q)mkdir -p $(B); s='$(subst ','"'"',$(CC) $(filter-out -Werror,$(XFLAGS)) $(PKG_CFLAGS) $(HARDEN_FLAGS) $(CFLAGS) $(CPPFLAGS) $(PROGLDX) $(LDFLAGS))'; \
	  [ "$$s" = "$$(cat $@ 2>/dev/null)" ] || echo "$$s" > $@

# What --version -v and the plugin print. main.o and the plugin's build.o alone have it, so that a commit does not
# compile other files and does not link the tests of the layers below again. Flags that name the folder of the build are left out.
COMMIT := $(or $(shell git describe --always --dirty --exclude='*' --abbrev=12 2>/dev/null),unknown)
BUILD_FLAGS := $(subst ",,$(subst ',,$(filter-out -ffile-prefix-map=% -fdebug-prefix-map=%,$(HARDEN_FLAGS) $(HARDEN_PIE) $(HARDEN_LD) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN)))))
BUILD_DEFS = -DDR_COMMIT='"$(COMMIT)"' -DDR_BUILD_FLAGS='"$(BUILD_FLAGS)"' -DDR_BUILD_LIBRARIES='"$(PKG_VERSIONS)"'
$(B)/orchestrator/main.o $(B)/plugin/build.o: private CPPFLAGS += $(BUILD_DEFS)
$(B)/orchestrator/main.o $(B)/plugin/build.o: $(B)/.commit
$(B)/.commit: FORCE
	$(Q)mkdir -p $(B); [ '$(COMMIT)' = "$$(cat $@ 2>/dev/null)" ] || echo '$(COMMIT)' > $@

# Objects that all tests and programs of a folder in tests/ share.
aids_of  = $(patsubst %.c,$(B)/%.o,$(filter-out $(IS_TEST),$(wildcard $(1)/*.c)))
define test_dir
$(B)/$(1)/tests $(patsubst %.c,$(B)/%,$(wildcard $(1)/*_main.c)): $(call aids_of,$(1))
endef
$(foreach d,$(TEST_DIRS),$(eval $(call test_dir,$(d))))
# The folder's own time stamp changes with the list of its files.
define test_program
$(1)tests: $(2:=.o)
$(1)tests.o: $(1:$(B)/%=%) tests/multicall.c $(B)/.flags
$(1)tests.o: private TESTS = $(patsubst %,T(%),$(notdir $(2)))
$(2): $(1)tests
endef
$(foreach d,$(sort $(dir $(DIR_TESTS))),$(eval $(call test_program,$(d),$(foreach t,$(DIR_TESTS),$(if $(filter $(d),$(dir $(t))),$(t))))))
# The simulated transport and the fault-injecting wrapper, which these tests use.
SIM_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/sim/world/*.c tests/faulty/*.c))
$(addprefix $(B)/,$(addsuffix /tests,channel tests/sim tests/conformance orchestrator/engine)): $(SIM_OBJS)
# Unit tests of the plugin see its symbols, which the shared object hides.
$(B)/plugin/tests: $(PLUG_OBJS)
$(filter $(B)/bootstrap/%,$(OWN_TESTS)): private LDFLAGS += -Wl,--wrap=dr_now_ns # their own clock, see clock_testkit.h
$(B)/%/tests.o:
	$(Q)mkdir -p $(@D) && $(CC) $(XFLAGS) $(CFLAGS) $(CPPFLAGS) '-DTESTS=$(TESTS)' -c -o $@ tests/multicall.c
$(B)/%/tests: $(B)/%/tests.o $(ARCHIVES)
	$(call SAY,TEST,$@)
	$(Q)$(CC) $(PROGLDX) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LIBS)
$(DIR_TESTS):
	$(Q)ln -sf tests $@
$(OWN_TESTS): %: %.o $(ARCHIVES)
	$(call SAY,TEST,$@)
	$(Q)$(CC) $(PROGLDX) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LIBS)
$(B)/%_main: $(B)/%_main.o $(ARCHIVES)
	$(call SAY,LD,$@)
	$(Q)$(CC) $(PROGLDX) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)
# The program with its calls led through tests/torture/dualrail_main.c, which may fail them.
$(B)/tests/torture/dualrail_main: private LDFLAGS += @tests/torture/wrap.ld
$(B)/tests/torture/dualrail_main: $(B)/orchestrator/main.o tests/torture/wrap.ld
# Each target is a program with libFuzzer; all of them are in the test that replays their inputs.
FUZZ_LIB := $(B)/tests/fuzz/lib/fake_nl.o $(B)/tests/fuzz/lib/fuzz.o
$(B)/tests/fuzz/replay_test: $(FUZZERS:=.o) $(FUZZ_LIB) $(B)/plugin.a
$(B)/plugin.a: $(PLUG_OBJS)
	$(Q)mkdir -p $(@D) && rm -f $@ && ar rcs $@ $^
$(B)/%_fuzz: $(B)/%_fuzz.o $(FUZZ_LIB) $(B)/plugin.a $(ARCHIVES)
	$(call SAY,FUZZ,$@)
	$(Q)$(CC) $(PROGLDX) -fsanitize=fuzzer $(LDFLAGS) -o $@ \
	  $(filter %.o,$^) $(filter %.a,$^) $(LIBS)
$(B)/%_plugin.so: $(B)/%_plugin.o
	$(call SAY,LD,$@)
	$(Q)$(CC) -shared $(LDHARD) $(LDFLAGS) -o $@ $^ $(LIBS)
# Machines for tests of the topology.
MACHINES := $(patsubst %,tests/fixtures/topology/%.xml,a3-high a3-numa bond dgx dual-port single vm)
AIDS     += $(MACHINES)
$(filter $(B)/topology/% $(B)/plugin/% $(B)/orchestrator/plan/%,$(TESTS)): | $(MACHINES)
$(MACHINES): %.xml: tests/fixtures/topology/make.py
	$(Q)python3 $< $(*F)
# The fake NICs and GPUs are more than one file.
FAKE_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/fakeverbs/ibverbs/*.c) base/assert.c base/clock.c)
$(B)/tests/fakeverbs/ibverbs_plugin.so: $(FAKE_OBJS)
FAKE_GPU_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/fakecuda/cuda/*.c) base/assert.c base/clock.c)
$(B)/tests/fakecuda/cuda_plugin.so: $(FAKE_GPU_OBJS)
# The emulated NCCL plugin, linked as NCCL expects it. Tests load it.
NET_PLUGIN := $(B)/tests/plugins/libnccl-net-fake.so
NET_OBJS   := $(patsubst %.c,$(B)/%.o,$(wildcard tests/plugins/net/*.c))
AIDS       += $(if $(filter tests/plugins,$(TEST_DIRS)),$(NET_PLUGIN))
$(filter $(B)/tests/plugins/% $(B)/tests/conformance/%,$(TESTS)): | $(NET_PLUGIN) $(PLUGIN) $(B)/tests/fakecuda/cuda_plugin.so
$(NET_PLUGIN): $(NET_OBJS) $(B)/libdualrail.a tests/plugins/libnccl-net-fake.map
	$(call SAY,LD,$@)
	$(Q)$(CC) $(SOLDX) -Wl,--version-script=$(filter %.map,$^) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS)

tests: $(TESTS) $(AIDS) ## build the tests, run nothing
unit: $(TESTS) $(AIDS) ## run the unit tests only
	$(Q)scripts/check.sh --unit $(B) $(TESTS)
# Two makes, so that the tools are there before the first file is compiled.
check: ## build, then run the tests; as root missing packages are installed: ALL=1 also those with the tag nightly
	$(Q)scripts/setup.sh build test
	$(Q)$(MAKE) --no-print-directory all tests exports
	$(Q)ALL='$(ALL)' scripts/check.sh $(B) $(TESTS)
lint: ## rules that are programs: layers, format, analysers of changed files (ALL=1: of all), banned calls, sizes, links
	$(Q)scripts/setup.sh build lint
	$(Q)ALL='$(ALL)' BASE='$(BASE)' scripts/lint.sh
nightly: ## all that takes long: PARTS="sim lab" only these, AGAIN=1 also what has passed on this commit
	$(Q)scripts/nightly.sh $(PARTS)
check-install: all ## the demo, make install and the archive of make bundle, used from elsewhere
	$(Q)tests/install/installed.sh $(B)
.PHONY: nightly check-install
sim: $(B)/tests/sim/sim_test ## seeded failover schedules: SEEDS=n of them (JOBS=n processes, from SEED=n on), or SEED=n (WITHOUT=mask) alone one, traced
	$(Q)SEEDS='$(SEEDS)' SEED='$(SEED)' WITHOUT='$(WITHOUT)' $< $(if $(JOBS),--jobs $(JOBS)) \
	  $(if $(SEED),$(if $(SEEDS),,-v))
exhaustive: $(B)/tests/exhaustive/exhaustive_main ## every interleaving of a small scope of the failover core; OPTS="kind=stream faults=2" one run
	$(Q)$< $(OPTS)
exhaustive-full: $(B)/tests/exhaustive/exhaustive_main ## the same and larger scopes: ten minutes of one core, 2.5 GB
	$(Q)$< full
.PHONY: exhaustive-full
fuzz: ## libFuzzer on every parser of foreign bytes: SECS=60 each, TARGETS="conv plan" only these
	$(Q)scripts/setup.sh build fuzz
	$(Q)$(MAKE) --no-print-directory fuzzers B=$(FUZZ_B) CC=clang SAN=fuzzer-no-link,address,undefined
	$(Q)tests/fuzz/run.sh $(FUZZ_B) $(or $(SECS),60) $(TARGETS)
fuzzers: $(FUZZERS)
torture: $(B)/tests/torture/torture_test $(B)/tests/torture/dualrail_main ## fail every allocation and system call of a run, one a run
	$(Q)DR_TEST_TIMEOUT=$(or $(DR_TEST_TIMEOUT),14400) TORTURE=$(or $(TORTURE),all) scripts/check.sh --unit $(B) $<
chaos: $(B)/dualrail ## drawn faults on real sockets, as root: TRIALS=n JOBS=n SEED=n KINDS=a,b; then the gap beside an observer
	$(Q)tests/chaos/recount_check.py && tests/chaos/chaos.py --dualrail $< --out $(B)/chaos-out \
	  $(if $(TRIALS),--trials $(TRIALS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(KINDS),--kinds $(KINDS)) && tests/chaos/calibrate.py --dualrail $< --out $(B)/chaos-out --trials 48 \
	  --bandwidth 4 || [ $$? = 77 ]
kills: $(B)/dualrail ## SIGKILL of an end, its guard, both, its process group, PID namespace or cgroup while a fault is held, as root: TRIALS=100
	$(Q)tests/chaos/kill.sh $< $(or $(TRIALS),100) || [ $$? = 77 ]
soak: $(B)/dualrail ## HOURS=h of verified data while links flap, as root; the same command goes on where it was stopped
	$(Q)tests/chaos/soak.py --dualrail $< --out $(B)/soak-out --hours $(or $(HOURS),1) $(OPTS) || [ $$? = 77 ]
.PHONY: chaos kills soak
exonerate: $(B)/dualrail ## sweeps of a clean fabric, with one rail outside the bounds, with a lost node, as root: SWEEPS=20 KINDS="clean half"
	$(Q)tests/sweep/exonerate.sh $< $(or $(SWEEPS),20) $(KINDS) || [ $$? = 77 ]
check-schedulers: $(B)/dualrail ## dualrail sweep under Debian's Open MPI and Slurm, in a Debian of their own (debootstrap), as root
	$(Q)scripts/schedulers.sh $(B) || [ $$? = 77 ]
image: ## the container image on a bare Debian, by debootstrap and buildah, and its demo, as root
	$(Q)mkdir -p $(B) && scripts/image.sh $(B) || [ $$? = 77 ]
.PHONY: exonerate check-schedulers image
plugin-cycles: ## open and close CYCLES=10000 comms of the NCCL plugin over loopback, then a sixth as many communicators: nothing is left
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)CYCLES=$(or $(CYCLES),10000) LIMIT=3600 NCCL_SOCKET_IFNAME=lo $(B)/tests/plugin/contract_main --times \
	  --versions 11 $(PLUGIN) cycles communicators
.PHONY: plugin-cycles
check-outside: ## faults made by ip, tc, nft and ss between two namespaces, each with its verdict and longest stall, as root: STALLS=FILE collects them
	$(Q)scripts/setup.sh build test
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)ALL=1 STALLS='$(abspath $(STALLS))' scripts/check.sh --unit $(B) $(wildcard tests/outside/*.bats)
.PHONY: check-outside
check-compare: $(B)/dualrail ## false alarms and power of `dualrail compare` on runs of the demo, as root: PAIRS=20 RUNS=15
	$(Q)tests/compare/pairs.py --dualrail $(abspath $<) --out $(B)/compare-out --pairs $(or $(PAIRS),20) \
	  --runs $(or $(RUNS),15) real
.PHONY: check-compare
check-attack: ## attacks on both programs and on their protocols, with a table: NAMES="flood wrong-time" only these
	$(Q)scripts/setup.sh build test
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tests/attack/run.sh $(B) $(NAMES)
check-attack-long: ## the same with every value of every byte, and floods of 30 s; takes many minutes
	$(Q)scripts/setup.sh build test
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tests/attack/run.sh --long $(B) $(NAMES)
.PHONY: check-attack check-attack-long
# axe-core is no part of this tree; its release is named here, npm checks its digest.
AXE := axe-core@4.11.0
check-report: $(B)/dualrail ## pages of `dualrail report` in headless Chromium, light, dark, wide, phone: installs chromium as root; SHOTS=DIR
	$(Q)scripts/setup.sh report || :
	$(Q)AXE='$(AXE)' SHOTS='$(abspath $(SHOTS))' tests/report/check.sh $(abspath $<)
.PHONY: check-report
mutants: ## apply the patches of tests/mutants one by one, the test that each names has to fail: NAMES="03 12" only these
	$(Q)scripts/setup.sh build test mutate
	$(Q)scripts/mutate.py --patches tests/mutants $(NAMES)
mutate: ## N=40 fresh random bugs in each folder of the data path, FOLDERS="channel plugin" in these; survivors are listed with their seeds
	$(Q)scripts/setup.sh build test mutate
	$(Q)scripts/mutate.py -n $(or $(N),40) $(if $(MINUTES),--minutes $(MINUTES)) $(or $(FOLDERS),channel detect window transport bootstrap plugin)
.PHONY: mutate
coverage: ## line coverage of window, channel and bootstrap by the tests without end-to-end runs
	$(Q)scripts/setup.sh build test cover
	$(Q)scripts/coverage.sh
# Nothing of the lab is needed to say that it cannot run here.
check-lab: ## two emulated nodes with RDMA devices: boots them, runs tests/lab; FILES="..." FILTER=regex LAB_BUSY=1
	$(Q)scripts/setup.sh build test lab || :
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)FILTER='$(FILTER)' LAB_BUSY='$(LAB_BUSY)' scripts/lab/check.sh $(B) $(FILES)
bench-lab: all ## dualrail beside perftest in the lab, and campaigns of faults: BENCH_PAIRS=n TRIALS=n
	$(Q)scripts/setup.sh build lab || :
	$(Q)scripts/lab/bench.sh $(B)
	$(Q)MODES='fast conservative' scripts/lab/failover.sh $(B)
check-gpu: all tests ## what needs an NVIDIA GPU or CUDA's tools: PARTS="code device sanitizer e2e matrix campaign ratio unpack nccl left"
	$(Q)PARTS='$(PARTS)' scripts/gpu/check.sh $(B)
.PHONY: check-lab bench-lab check-gpu
FUZZ_B ?= build/libfuzzer
bench: all ## measure beside the peers (iperf3, qperf, ucx_perftest)
	$(Q)scripts/setup.sh build bench
	$(Q)$(MAKE) --no-print-directory $(B)/tests/handshake/handshake_main
	$(Q)$(MAKE) --no-print-directory B=build/plain HARDEN=no build/plain/dualrail
	$(Q)scripts/bench/run.sh $(B)
setup: ## install (root) or name what build, tests, lint and benchmarks need
	$(Q)scripts/setup.sh build test lint fuzz cover bench lab

headers: ## every header compiles alone
	$(Q)f=0; for h in $$(find $(wildcard $(LAYERS)) -name '*.h'); do \
	  $(CC) $(XFLAGS) -Wno-unused-function -fsyntax-only -x c $$h || f=1; done; exit $$f
exports: $(B)/libdualrail.so $(PLUGIN) ## the library exports what the installed headers declare, the plugin NCCL's tables
	$(Q)CC='$(CC)' scripts/exports.sh check $(B)/$(SONAME) $(HEADERS)
	$(Q)! nm -D --defined-only $(PLUGIN) | awk '$$2 ~ /[TDBRVW]/ {print $$3}' | grep -v '^ncclNetPlugin_v'

# Compiled without inlining, one section per function, the linker names the functions that neither the
# program nor a user of the library reaches.
unused: ## functions that only tests call; scripts/lint.sh unused compares them with scripts/lint-unused.txt
	$(Q)$(MAKE) --no-print-directory -s B=$(B)/unused CFLAGS='-O0 -w -ffunction-sections' unused-list
unused-list: $(B)/orchestrator/main.o $(OBJS)
	$(Q)$(CC) $(LDX) -Wl,--gc-sections,--print-gc-sections -o $(B)/dualrail \
	  $(addprefix -Wl$(comma)-u$(comma),$(shell CC='$(CC)' scripts/exports.sh names $(HEADERS)) ncclNetPlugin_v12) $^ $(LIBS) 2>&1 | \
	  sed -nE "s#.*section '\.text\.([A-Za-z_0-9]+)' in file '$(B)/([^']*)\.o'.*#\1 \2.c#p" | sort
.PHONY: unused unused-list

schemas: $(B)/schema/result.json ## the JSON Schema of each document, from the program's tables
$(B)/schema/result.json: $(B)/dualrail
	$(call SAY,GEN,$(@D))
	$(Q)rm -rf $(@D) && mkdir -p $(@D) && for n in $$($< schema); do $< schema $$n >$(@D)/$$n.json || exit 1; done && test -s $@
.PHONY: schemas

man: $(B)/dualrail.1 $(B)/man3/libdualrail.3 ## the manual pages, of the program and of the library
$(B)/man3/libdualrail.3: $(HEADERS) docs/examples/put.c scripts/man3.awk VERSION
	$(call SAY,MAN,$(@D))
	$(Q)rm -rf $(@D) && mkdir -p $(@D) && awk -v dir=$(@D) -v version=$(VERSION) -v example=docs/examples/put.c \
	  -f scripts/man3.awk $(HEADERS)
$(B)/dualrail.1: $(B)/dualrail
	$(call SAY,MAN,$@)
	$(Q)$< --man > $@.tmp && mv $@.tmp $@
$(B)/dualrail.bash: $(B)/dualrail
	$(call SAY,GEN,$@)
	$(Q)$< completion bash > $@.tmp && mv $@.tmp $@
$(B)/dualrail.pc: VERSION Makefile
	$(Q)mkdir -p $(@D); printf '%s\n' 'Name: dualrail' 'Version: $(VERSION)' \
	  'Description: Blocks of memory between two processes over two or more NICs, with failover and failback' \
	  'Requires.private: $(PKGS)' 'Libs: -L$(LIBDIR) -ldualrail' 'Libs.private: -lm -ldl -pthread' \
	  'Cflags: -I$(INCDIR)' > $@

$(B)/dualrail-server.service: scripts/systemd/dualrail-server.service Makefile
	$(Q)mkdir -p $(@D) && sed 's|@BINDIR@|$(BINDIR)|' $< > $@

install: all man schemas $(B)/dualrail.bash $(B)/dualrail.pc $(B)/dualrail-server.service ## install under DESTDIR/PREFIX
	install -D -m 755 $(B)/dualrail $(DESTDIR)$(BINDIR)/dualrail
	install -D -m 755 $(B)/$(SONAME) $(DESTDIR)$(LIBDIR)/libdualrail.so.$(VERSION)
	ln -sf libdualrail.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libdualrail.so
	install -D -m 644 $(B)/libdualrail.a $(DESTDIR)$(LIBDIR)/libdualrail.a
	install -D -m 755 $(PLUGIN) $(DESTDIR)$(NCCLDIR)/$(notdir $(PLUGIN))
	for l in $(NCCL_LINKS); do ln -sf $(notdir $(PLUGIN)) $(DESTDIR)$(NCCLDIR)/$$l || exit 1; done
	install -D -m 644 $(B)/dualrail.pc $(DESTDIR)$(LIBDIR)/pkgconfig/dualrail.pc
	install -D -m 644 $(B)/dualrail.1 $(DESTDIR)$(MANDIR)/man1/dualrail.1
	for f in $(B)/man3/*.3; do install -D -m 644 $$f $(DESTDIR)$(MANDIR)/man3/$${f##*/} || exit 1; done
	install -D -m 644 $(B)/dualrail.bash $(DESTDIR)$(BASHDIR)/dualrail
	install -D -m 644 $(B)/dualrail-server.service $(DESTDIR)$(UNITDIR)/dualrail-server.service
	for d in $(PREFIX)/share/dualrail $(DOCDIR)/docs; do \
	  install -D -m 644 -t $(DESTDIR)$$d/schema $(B)/schema/*.json || exit 1; done
	for f in dashboard.json alerts.yaml; do install -D -m 644 scripts/metrics/$$f $(DESTDIR)$(PREFIX)/share/dualrail/metrics/$$f || exit 1; done
	for h in $(HEADERS); do install -D -m 644 $$h $(DESTDIR)$(INCDIR)/$${h##*/} || exit 1; done
	for f in $(DOCS); do install -D -m $$(test -x $$f && echo 755 || echo 644) $$f $(DESTDIR)$(DOCDIR)/$$f || exit 1; done
	install -m 644 $(NOTICES) $(DESTDIR)$(DOCDIR)
uninstall: ## undo install
	rm -f $(DESTDIR)$(BINDIR)/dualrail $(DESTDIR)$(LIBDIR)/libdualrail.so* \
	  $(DESTDIR)$(LIBDIR)/libdualrail.a $(addprefix $(DESTDIR)$(NCCLDIR)/,$(notdir $(PLUGIN)) $(NCCL_LINKS)) \
	  $(DESTDIR)$(LIBDIR)/pkgconfig/dualrail.pc $(DESTDIR)$(MANDIR)/man1/dualrail.1 $(addprefix $(DESTDIR)$(MANDIR)/man3/,libdualrail.3 dualrail_*.3) \
	  $(DESTDIR)$(BASHDIR)/dualrail $(DESTDIR)$(UNITDIR)/dualrail-server.service
	rm -f $(addprefix $(DESTDIR)$(INCDIR)/,$(notdir $(HEADERS)))
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/share/dualrail/,schema metrics) $(DESTDIR)$(DOCDIR)/docs/schema
	rm -f $(addprefix $(DESTDIR)$(DOCDIR)/,$(DOCS) $(notdir $(NOTICES)))
	(cd $(DESTDIR)$(DOCDIR) && rmdir -p --ignore-fail-on-non-empty $(sort $(dir $(DOCS)))) 2>/dev/null || :
	rmdir $(DESTDIR)$(DOCDIR) 2>/dev/null || :

# Linked again, with RPATH (not RUNPATH, which does not reach the libraries' own dependencies).
$(B)/bundle/dualrail: $(B)/orchestrator/main.o $(ARCHIVES)
	$(call SAY,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(PROGLDX) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib' $(LDFLAGS) \
	  -o $@ $^ $(LIBS)
$(B)/bundle/libnccl-net-ha.so: $(PLUG_OBJS) $(B)/libdualrail.a plugin/libnccl-net-ha.map
	$(call SAY,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(SOLDX) $(PLUG_LD) -Wl,--version-script=plugin/libnccl-net-ha.map \
	  -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/..' $(LDFLAGS) -o $@ $(PLUG_OBJS) $(B)/libdualrail.a $(LIBS)
bundle: $(B)/bundle/dualrail $(B)/bundle/libnccl-net-ha.so man $(B)/dualrail.bash ## dist/dualrail-VERSION-ARCH.tar.gz: unpack anywhere and run
	$(Q)NCCL_LINKS='$(NCCL_LINKS)' scripts/bundle.sh $(B) $(VERSION)

# Both build from a copy of the tree in $(B), with flags of their own; COMMIT and SOURCE_DATE_EPOCH are that of the last
# commit if not given.
deb: ## dist/*.deb with an SPDX document, by debhelper
	$(Q)scripts/packages/deb.sh $(B) $(VERSION) '$(COMMIT)'
rpm: ## dist/*.rpm with an SPDX document, by rpmbuild
	$(Q)scripts/packages/rpm.sh $(B) $(VERSION) '$(COMMIT)'
check-deb: ## builds the Debian packages; lintian, what is in them, SPDX rules
	$(Q)scripts/setup.sh build test deb package
	$(Q)$(MAKE) --no-print-directory deb
	$(Q)scripts/check.sh --unit $(B) tests/install/deb.bats
check-packages: ## the same; a second build is identical; install, run, upgrade, remove in a bare chroot (root); RPM packages
	$(Q)scripts/setup.sh build test deb rpm package
	$(Q)$(MAKE) --no-print-directory deb
	$(Q)scripts/check.sh --unit $(B) tests/install/deb.bats tests/install/packages.bats
.PHONY: deb rpm check-deb check-packages

compile_commands.json: FORCE ## for clangd and clang-tidy
	$(file >$@,[)$(foreach f,$(ALL_SRCS),$(file >>$@,$(if $(filter $(f),$(firstword $(ALL_SRCS))),,$(comma)) \
	  {"directory": "$(CURDIR)"$(comma) "file": "$(f)"$(comma) "command": "cc $(subst ",\",$(XFLAGS) \
	  $(PKG_CFLAGS)) -c $(f)"}))$(file >>$@,])
	@:

clean: ## remove what was built
	rm -rf build dist compile_commands.json
help: ## list the targets
	@awk -F':.*## ' '/^[a-z_.]+:.*## /{printf "  %-22s %s\n",$$1,$$2}' $(firstword $(MAKEFILE_LIST))
FORCE:
.PHONY: mutants coverage exhaustive sim fuzz fuzzers torture all tests unit check lint bench setup headers exports man install uninstall bundle clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(OBJS:.o=.d) $(TESTS:=.d) $(B)/orchestrator/main.d \
	$(patsubst %.c,$(B)/%.d,$(AID_SRCS)) $(FUZZERS:=.d) $(FUZZ_LIB:.o=.d) $(SIM_OBJS:.o=.d) $(FAKE_OBJS:.o=.d) \
	$(FAKE_GPU_OBJS:.o=.d) $(NET_OBJS:.o=.d) $(foreach d,$(TEST_DIRS),$(patsubst %.o,%.d,$(call aids_of,$(d))))
