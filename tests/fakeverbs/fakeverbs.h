/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEVERBS_FAKEVERBS_H
#define DR_TESTS_FAKEVERBS_FAKEVERBS_H

#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * libibverbs and emulated NICs, inside one process: DR_IBVERBS=.../ibverbs_plugin.so makes
 * dualrail's loader take it. This table, the data symbol dr_fake_ctl of that library, is how a test
 * makes faults and sees what happened. Everything is thread-safe.
 *
 * The devices come from DR_FAKE_IBV, "NAME:IFNAME:IPV4,..."; unset: "fake0:lo:127.0.0.1,fake1:lo:127.0.0.2".
 * One port each; the GID table has the v1 and v2 entries of the link-local GID at 0 and 1 and of the
 * address at 2 and 3.
 *
 * What it holds to, in the places where NICs differ (stricter or later one taken):
 *  - limits are as asked for, not rounded up; a slot is free when the completion that covers it was polled
 *  - fields of a work completion that are not valid at errors hold misleading values
 *  - receives posted in ERR never complete (rxe); sends posted in ERR flush
 *  - a queue pair whose source GID left its index sends nothing and never gives up (rxe)
 *  - destroy_qp and RESET take the queue pair's completions out of the CQs, unless keep_cqes
 *  - arming a CQ makes an event for the next completion, not for those that are there
 *
 * dev: a device's name; NULL: all. Calls are named as in libibverbs without "ibv_" ("create_qp",
 * "query_gid_ex", "post_send", "poll_cq").
 */
enum { DR_FAKE_TX = 1, DR_FAKE_RX = 2, DR_FAKE_BOTH = 3 };

struct dr_fake_alive {
	unsigned lists, contexts, pds, mrs, channels, cqs, qps, ahs;
};

/* A port of InfiniBand's link layer. Its GID table has one entry, the port's own. */
struct dr_fake_ib {
	uint16_t lid;
	bool grh_required; /* the port takes no route without a GRH */
	uint64_t prefix;   /* of its subnet; 0: link-local */
	const char *
		ibdev_path; /* stands for the device in sysfs: "parent" in it names the net device */
};

struct dr_fake_ctl {
	/* Everything that is alive is freed, every fault and count forgotten, DR_FAKE_IBV read again. No
	 * other thread may be in a call. */
	void (*reset)(void);

	/* From now on it is now_ns for the NICs, until the next call; what is due moves. DR_NEVER: the monotonic
	 * clock, as at the beginning. */
	void (*time)(int64_t now_ns);

	/* The k-th call (1: the next) fails once with err (0: one that fits). call "*": of all that can
	 * fail. k 0: none. Only one such order at a time. A post takes all of its list but the last. */
	void (*fail_call)(const char *call, unsigned k, int err);
	/* The call that the order of fail_call() failed, NULL: not reached yet. */
	const char *(*failed)(void);
	/* Every call fails with err until err 0. */
	void (*fail_always)(const char *call, int err);
	/* Every such call blocks for ms first. */
	void (*delay)(const char *call, int ms);
	/* Once, before the next such call does its work: fn(arg), which may use this table. */
	void (*before)(const char *call, void (*fn)(void *arg), void *arg);
	unsigned (*count)(const char *call);
	void (*alive)(struct dr_fake_alive *out);
	unsigned (*alive_total)(void);
	/* Misuse seen: a CQ overrun, an object destroyed twice, with events not acknowledged or with
	 * children, ...; first: words for the first one. */
	unsigned (*violations)(const char **first);

	/* Nothing passes in these directions, silently (dirs 0: all passes again). Cutting RX alone lets
	 * data arrive at the peer whose acknowledgment is lost. */
	void (*cut)(const char *dev, unsigned dirs);
	/* The same for queue pairs of this type alone. */
	void (*cut_type)(const char *dev, enum ibv_qp_type type, unsigned dirs);
	/* Packets that reach this device with more than so many bytes of payload are lost; 0: none. */
	void (*hole)(const char *dev, unsigned bytes);
	/* Cut, with PORT_ERR; up: PORT_ACTIVE. */
	void (*port)(const char *dev, bool up);
	/* Queue pairs go to ERR and flush, DEVICE_FATAL; from now on all but destroying fails with EIO. */
	void (*fatal)(const char *dev);
	/* Not listed any more, its node (dev_path) is gone. Fatal for who has it open; waits: as a software
	 * device it goes on working for them, without an event, until they have closed it. */
	void (*unplug)(const char *dev, bool waits);
	/* Another device of that name comes, with new queue pair numbers and the entries of its address
	 * at GID index at. -1: the old one is there, or still open. */
	int (*plug)(const char *dev, unsigned at);
	/* The port is, from now on, one of InfiniBand; again: LID_CHANGE when the LID is another. */
	void (*infiniband)(const char *dev, const struct dr_fake_ib *how);
	/* How many routes with or without a GRH queue pairs and address handles were given. */
	unsigned (*routes)(bool grh);
	/* GPU memory has a file behind it: its dma-buf is that file, and device addresses that a peer memory
	 * module knows are ranges of it. What a NIC writes there is seen by nobody before the same NIC
	 * reads from that region. err: reg_dmabuf_mr of this device fails with it; 0: works. */
	void (*dmabuf)(const char *dev, int err);
	int (*peer_memory)(uint64_t base, size_t len, int fd); /* until reset; -1: no room */
	/* reg_mr of memory in this range fails with err, other regions can be had; 0: all can. */
	void (*refuse)(const void *base, size_t len, int err);
	/* Work waits in the NIC, and no timer runs, until released. */
	void (*hold)(const char *dev, bool on);
	void (*latency)(const char *dev, int64_t ns);
	/* The next n datagrams that leave this device get lost. */
	void (*drop)(const char *dev, unsigned n);
	/* retry_cnt 7 means infinite, as in rxe. Default: 7 retries. */
	void (*retry7_for_ever)(const char *dev, bool on);
	/* Queue pairs in ERR do not flush (a fence that hangs); off: they do so now. */
	void (*no_flush)(const char *dev, bool on);
	void (*keep_cqes)(bool on);
	/* modify_qp to RTR blocks for ms, then fails with err when that is not 0. */
	void (*rtr)(const char *dev, int ms, int err);
	/* modify_qp to RTR of a queue pair that leads to itself fails with err; 0: works. */
	void (*loop)(const char *dev, int err);
	/* Such a call waits until off, for 300 ms at most. */
	void (*loop_hold)(const char *dev, bool on);
	/* After skip more, the next send (or receive) completion of this queue pair (qpn 0: any RC) of the
	 * device has this status; what follows from it follows. */
	void (*status)(
		const char *dev, uint32_t qpn, bool recv, enum ibv_wc_status s, unsigned skip);
	bool (*status_done)(const char *dev, bool recv);

	/* Where the address stands: -1 not at all. type: enum ibv_gid_type. */
	int (*gid_index)(const char *dev, const char *ipv4, unsigned type);
	/* To another index, with GID_CHANGE. 0 or -1. */
	int (*gid_move)(const char *dev, int from, int to);
	/* Both entries go or come (to the first free indices), with GID_CHANGE. 0 or -1. */
	int (*addr_del)(const char *dev, const char *ipv4);
	int (*addr_add)(const char *dev, const char *ipv4);

	/* An asynchronous event as it stands: about a queue pair (qpn not 0) or the port. CQ_ERR: the completion queue
	 * of that queue pair takes no completion any more. */
	void (*event)(const char *dev, uint32_t qpn, enum ibv_event_type type);
	/* A queue pair goes to ERR by itself, as a NIC does it (event QP_FATAL when asked for). -1: none. */
	int (*qp_error)(uint32_t qpn, bool event);
	/* The state that the NIC has, also when a modify does not know; -1: no such queue pair. */
	int (*qp_state)(uint32_t qpn);
	/* The numbers of the queue pairs of a device and type that are alive; returns how many. */
	unsigned (*qp_list)(const char *dev, enum ibv_qp_type type, uint32_t *qpns, unsigned max);
};

/* Sets DR_IBVERBS to the library beside this test's folder (build/.../tests/X/Y_test), or at up ("../.."
 * for a test in build/.../transport/verbs), and returns its table; NULL when it is not built. */
static inline const struct dr_fake_ctl *dr_fake_attach(const char *up)
{
	char exe[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	void *lib;

	if (n <= 0)
		return NULL;
	exe[n] = '\0';
	(void)snprintf(path, sizeof(path), "%s/%s/fakeverbs/ibverbs_plugin.so", dirname(exe),
		up ? up : "..");
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return NULL;
	(void)setenv("DR_IBVERBS", path, 1);
	return dlsym(lib, "dr_fake_ctl");
}

#endif
