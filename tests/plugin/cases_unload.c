/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include <stdio.h>

/* The plugin unloaded between communicators, and what is left after many comms. */

static void one_comm(struct end *e)
{
	bool sends = e->r->id == 0;
	void *comm = end_comm(e, 0, 1, 0);

	end_ping(e, comm, sends);
	end_close_comm(e, comm, sends);
}

/* NCCL from 2.28 on unloads the plugin after the last communicator, older ones before 2.26 do too. */
static void unload(struct rank *r)
{
	enum { WITH_COMM = 10 };
	int times = r->version == 11 ? 50 : 5; /* each takes its time */
	struct held before = held_now();
	struct end e;

	for (int i = 0; i < times; i++) {
		atomic_store(&r->view->step, (unsigned long)i);
		end_open(&e, r);
		if (i % WITH_COMM == 0)
			one_comm(&e);
		end_finalize(&e);
		RANK_AT(r, "unload");
		host_unload(&e.h);
		if (i == 0) /* versions without finalize keep what the first one began */
			before = host_has_contexts(&e.h) ? before : held_now();
		held_back_to(r, before, "after unloading");
	}
}

/* Far more than a busy allocator keeps; 10,000 cycles that leak 2 KiB each exceed it. */
enum { GROWTH_KIB = 20000 };

/* Comms of one communicator that come and go. CYCLES=10000 by hand. */
static void cycles(struct rank *r)
{
	unsigned long n = contract_env("CYCLES", 30), kib = 0;
	bool sends = r->id == 0;
	struct held before = { 0 };
	struct end e;

	end_open(&e, r);
	for (unsigned long i = 0; i < n; i++) {
		void *comm = end_comm(&e, 0, 1, 0);

		atomic_store(&r->view->step, i);
		if (i % 10 == 0)
			end_ping(&e, comm, sends);
		rank_barrier(r); /* both ends have it */
		end_close_comm(&e, comm, sends);
		if (i == n / 3) {
			before = held_now();
			kib = resident_kib();
		}
	}
	/* What closes at the moment of the first count is still there. */
	before.fds += 40;
	held_back_to(r, before, "after all cycles");
	RANK_CHECK(r, resident_kib() < kib + GROWTH_KIB, "%lu KiB, %lu KiB after a third",
		resident_kib(), kib);
	end_close(&e);
}

/* Communicators that come and go, each with a comm. */
static void communicators(struct rank *r)
{
	unsigned long n = contract_env("CYCLES", 30) / 6 + 1;
	struct held before;
	struct end e;

	end_open(&e, r);
	one_comm(&e);
	end_finalize(&e);
	before = held_now();
	for (unsigned long i = 0; i < n; i++) {
		atomic_store(&r->view->step, i);
		end_init(&e);
		one_comm(&e);
		end_finalize(&e);
		held_back_to(r, before, "after finalize");
	}
	host_unload(&e.h);
}

static const struct contract_case cases[] = {
	{ .name = "unload", .run = unload, .ranks = 2, .limit_s = 60, .each = true },
	{ .name = "cycles", .run = cycles, .ranks = 2, .limit_s = 60 },
	{ .name = "communicators", .run = communicators, .ranks = 2, .limit_s = 60 },
};
const struct contract_cases contract_unload = { cases, DR_ARRAY_LEN(cases) };
