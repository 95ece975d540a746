/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"
#include "base/sysfile.h"
#include "base/units.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The plugin unloaded between communicators, and what is left after many comms. */

unsigned long contract_env(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);
	uint64_t value;

	return text && dr_parse_u64(text, 0, UINT32_MAX, &value, NULL) == 0 ? value : otherwise;
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
			end_short_comm(&e);
		end_close(&e);
		if (i == 0) /* versions without finalize keep what the first one began */
			before = e.n.finalize ? before : held_now();
		held_back_to(r, before, "after unloading");
	}
}

/*
 * NCCL 2.28 and 2.29 forget the file of a plugin that they unloaded after the last communicator: the next one asks the loader
 * for this name, which no folder of libraries has here (github.com/NVIDIA/nccl/issues/1978).
 */
static void file_forgotten(struct rank *r)
{
	struct end e;

	end_open(&e, r);
	end_short_comm(&e);
	end_close(&e);
	end_load(&e, r, "libnccl-net.so");
	CHECK(&e, strcmp(e.n.name, "HA") == 0, "another plugin: %s", e.n.name);
	end_init(&e);
	end_short_comm(&e);
	end_close(&e);
}

static unsigned long resident_kib(void)
{
	unsigned long pages = 0;
	char text[64];

	if (dr_sysfile_text(text, sizeof(text), "", "/proc/self/statm") > 0)
		(void)!sscanf(text, "%*u %lu", &pages);
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

/* Bytes of the heap in use, however many comms were opened before. GROWTH is what counters and lists may add once. */
enum { HEAP_GROWTH = 64 << 10, RESIDENT_GROWTH_KIB = 20000 };

struct count {
	struct held held;
	size_t heap; /* 0 under sanitizers, which keep what was freed, and find leaks themselves */
	unsigned long kib;
};

static struct count count_now(void)
{
	const struct mallinfo2 m = mallinfo2();

	return (struct count){
		.held = held_now(), .heap = m.uordblks + m.hblkhd, .kib = resident_kib()
	};
}

/* When no descriptor and no thread has come or gone for a while: the last comm's session has closed. */
static struct count settled(void)
{
	struct count c = count_now();
	int64_t since = dr_now_ns(), end = since + 10 * DR_NS_PER_S;
	unsigned turns = 0;

	while (dr_now_ns() < DR_MIN(since + 300 * DR_NS_PER_MS, end)) {
		struct count now = count_now();

		if (now.held.fds != c.held.fds || now.held.threads != c.held.threads)
			since = dr_now_ns();
		c = now;
		rank_relax(&turns);
	}
	return c;
}

/* One comm, in turns in either direction, so that each rank is each of its ends. */
static void cycle(struct end *e, unsigned long i)
{
	unsigned from = i % 2;
	bool sends = e->r->id == from;
	void *comm = end_comm(e, from, !from, 0);

	atomic_store(&e->r->view->step, i);
	if (i % 10 < 2)
		end_ping(e, comm, sends);
	rank_barrier(e->r); /* both ends have it */
	end_close_comm(e, comm, sends);
}

/* Comms of one communicator that come and go. `make plugin-cycles` does it 10,000 times. */
static void cycles(struct rank *r)
{
	unsigned long n = contract_env("CYCLES", 30), first = DR_MAX(n / 20, 4ul);
	struct count before, after;
	int64_t start;
	struct end e;

	end_open(&e, r);
	for (unsigned long i = 0; i < first; i++)
		cycle(&e, i);
	before = settled();
	rank_barrier(r);
	start = dr_now_ns();
	for (unsigned long i = 0; i < n; i++)
		cycle(&e, i);
	start = dr_now_ns() - start;
	held_back_to(r, before.held, "after all cycles");
	after = settled();
	printf("# rank %u: %lu cycles of %.1f ms after %lu; descriptors %u, then %u; threads %u, then %u; heap %zu, then %zu bytes; "
	       "resident %lu, then %lu KiB\n",
		r->id, n, (double)start / DR_NS_PER_MS / (double)DR_MAX(n, 1ul), first,
		before.held.fds, after.held.fds, before.held.threads, after.held.threads,
		before.heap, after.heap, before.kib, after.kib);
	fflush(stdout);
	RANK_CHECK(r, after.heap <= before.heap + HEAP_GROWTH, "heap %zu bytes, then %zu",
		before.heap, after.heap);
	RANK_CHECK(r, after.heap == 0 || after.kib <= before.kib + RESIDENT_GROWTH_KIB,
		"resident %lu KiB, then %lu", before.kib, after.kib);
	rank_barrier(r);
	end_close(&e);
}

/* Communicators that come and go, each with a comm. */
static void communicators(struct rank *r)
{
	unsigned long n = contract_env("CYCLES", 30) / 6 + 1;
	struct held before;
	struct end e;

	end_open(&e, r);
	end_short_comm(&e);
	end_finalize(&e);
	before = held_now();
	for (unsigned long i = 0; i < n; i++) {
		atomic_store(&r->view->step, i);
		end_init(&e);
		end_short_comm(&e);
		end_finalize(&e);
		held_back_to(r, before, "after finalize");
	}
	dr_nccl_close(&e.n);
}

static const struct contract_case cases[] = {
	{ .name = "unload", .run = unload, .ranks = 2, .each = true },
	{ .name = "file_forgotten", .run = file_forgotten, .ranks = 2, .each = true },
	{ .name = "cycles", .run = cycles, .ranks = 2 },
	{ .name = "communicators", .run = communicators, .ranks = 2 },
};
const struct contract_cases contract_unload = { cases, DR_ARRAY_LEN(cases) };
