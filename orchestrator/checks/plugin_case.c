/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/plugin_priv.h"

#include "base/mem.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

/* The cases of `dualrail plugin`. Each has a process of its own, so that none depends on what another one left. */

enum { KIB = 1024, MIB = 1024 * 1024 };

/* ---- loading: the devices ---- */

static void check_properties(struct probe *p, int dev, const struct dr_nccl_properties *q)
{
	struct plugin_shared *sh = p->sh;
	int devs_max = p->n.version >= 12 ? 8 : 4;

	if (q->past_end)
		plugin_found(sh, RULE_PROPERTIES,
			"device %d: getProperties wrote behind the struct of version %u", dev,
			p->n.version);
	else if (q->unset)
		plugin_found(sh, RULE_PROPERTIES,
			"device %d: getProperties did not write %s; NCCL passes the struct uninitialised",
			dev, q->unset);
	else if (!q->name)
		plugin_found(sh, RULE_NULL, "device %d: getProperties left name NULL", dev);
	else if (!(q->ptr_support & NCCL_PTR_HOST))
		plugin_found(sh, RULE_PROPERTIES, "device %d: ptrSupport %d lacks host memory (1)",
			dev, q->ptr_support);
	else if (q->max_recvs < 1 || q->max_comms < 1 || q->speed_mbps < 1)
		plugin_found(sh, RULE_PROPERTIES,
			"device %d: speed %d, maxComms %d, maxRecvs %d: none may be below 1", dev,
			q->speed_mbps, q->max_comms, q->max_recvs);
	else if (q->ndevs < 0 || q->ndevs > devs_max)
		plugin_found(sh, RULE_PROPERTIES, "device %d: vProps.ndevs %d is not 0 to %d", dev,
			q->ndevs, devs_max);
	else if (q->p2p_bytes < 1 || q->p2p_bytes > NCCL_NET_BYTES_MAX)
		plugin_found(sh, RULE_PROPERTIES, "device %d: maxP2pBytes %zu is not 1 to 2^40",
			dev, q->p2p_bytes);
}

/* NCCL takes devices of one guid and port for one. */
static void check_twins(struct plugin_shared *sh, int n)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < i; k++) {
			const struct plugin_device *a = &sh->device[k], *b = &sh->device[i];

			if (strcmp(a->name, b->name) == 0)
				plugin_found(sh, RULE_PROPERTIES,
					"devices %d and %d have the same name, %s", k, i, a->name);
			if (a->p.guid == b->p.guid && a->p.port == b->p.port)
				plugin_found(sh, RULE_PROPERTIES,
					"devices %d and %d have the same guid and port", k, i);
		}
}

static void load(struct probe *p)
{
	struct plugin_shared *sh = p->sh;
	int n = INT32_MIN;

	if (!CALL(p, CALL_DEVICES, p->n.devices(&n)))
		return;
	if (n == INT32_MIN) {
		plugin_found(sh, RULE_UNSET, "devices did not write *ndev");
		return;
	}
	if (n < 1) {
		dr_err_set(&sh->err, -ENODEV,
			"plugin %.40s offers %d devices; NCCL_DEBUG=INFO shows its log", sh->name,
			n);
		return;
	}
	sh->n_devices = DR_MIN(n, (int)PLUGIN_DEVICES);
	for (int i = 0; i < sh->n_devices; i++) {
		struct plugin_device *d = &sh->device[i];

		if (!CALL(p, CALL_PROPERTIES, dr_nccl_properties(&p->n, i, &d->p)))
			return;
		check_properties(p, i, &d->p);
		if (atomic_load(&sh->n))
			return; /* its pointers need not be valid */
		dr_text_copy(d->name, sizeof(d->name), d->p.name);
		dr_text_copy(d->pci, sizeof(d->pci), d->p.pci_path ? d->p.pci_path : "");
		d->p.name = d->p.pci_path = d->p.unset = NULL;
	}
	check_twins(sh, sh->n_devices);
}

const struct plugin_case plugin_load_case = { "load", "load, init, devices, properties", load };

/* ---- comms ---- */

static void ping(struct probe *p, const struct pair *c, uint64_t key)
{
	const struct exchange x = {
		.n = 1, .m = { { 4 * KIB, 4 * KIB } }, .rounds = 1, .group = 1, .key = key
	};

	(void)pair_exchange(p, c, &x);
}

/* Several comms at a time, closed in another order than opened. */
static void comms(struct probe *p)
{
	enum { COMMS = 4 };
	struct pair c[COMMS] = { { .send = NULL } };

	for (int i = 0; i < COMMS && !p->dead; i++)
		if (pair_open(p, &c[i]))
			ping(p, &c[i], (uint64_t)i * 1000);
	for (int i = 0; i < COMMS && !p->dead; i++)
		ping(p, &c[i], (uint64_t)i * 1000 + 500);
	for (int i = 0; i < COMMS; i++)
		pair_close(p, &c[i ^ 1]);
}

static int open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Closing may go on in the plugin's threads. */
static int settled_descriptors(struct probe *p, int most)
{
	struct pause w;
	int n;

	pause_start(p, &w);
	do {
		n = open_descriptors();
		(void)poll(NULL, 0, 1);
	} while (n > most && pause_turn(&w));
	return n;
}

static void reopen(struct probe *p)
{
	enum { WARM = 4, CYCLES = 16 };
	struct pair c;
	int before = 0, after;

	for (int i = 0; i < WARM + CYCLES && !p->dead; i++) {
		if (i == WARM)
			before = open_descriptors();
		if (pair_open(p, &c))
			ping(p, &c, (uint64_t)i);
		pair_close(p, &c);
	}
	if (p->dead)
		return;
	after = settled_descriptors(p, before + CYCLES - 1);
	if (after >= before + CYCLES)
		plugin_found(p->sh, RULE_DESCRIPTORS,
			"%d descriptors more are open after %d comms were opened and closed",
			after - before, CYCLES);
}

/* ---- messages ---- */

static void with_pair(struct probe *p, const struct exchange *x)
{
	struct pair c;

	if (!pair_open(p, &c))
		return;
	if (pair_exchange(p, &c, x))
		pair_close(p, &c);
}

static void sizes(struct probe *p)
{
	static const struct message m[] = { { 0, 0 }, { 0, 64 }, { 1, 1 }, { 7, 8 }, { 64, 64 },
		{ 128, 128 }, { 129, 4 * KIB }, { 4 * KIB, 4 * KIB }, { 8 * KIB, 8 * KIB },
		{ 8 * KIB - 1, 8 * KIB }, { 8 * KIB + 1, 8 * KIB + 1 }, { 64 * KIB, 64 * KIB },
		{ 64 * KIB + 1, 256 * KIB }, { 512 * KIB, 512 * KIB }, { 1, MIB },
		{ 512 * KIB + 1, 512 * KIB + 1 }, { MIB, MIB }, { 3 * MIB + 5, 4 * MIB },
		{ 8, 8 } };
	struct pair c;
	uint64_t key = 0;

	if (!pair_open(p, &c))
		return;
	for (size_t i = 0; i < DR_ARRAY_LEN(m) && !p->dead; i++)
		for (int first = FIRST_BOTH; first <= FIRST_SENDS && !p->dead; first++) {
			const struct exchange x = { .n = 1,
				.m = { m[i] },
				.rounds = 1,
				.group = 1,
				.first = (enum first)first,
				.no_sizes = first == FIRST_SENDS && i % 2,
				.key = key };

			(void)pair_exchange(p, &c, &x);
			key += WINDOW;
		}
	pair_close(p, &c);
}

/* As many as a comm may have, of mixed sizes. */
static void mixed(struct exchange *x, unsigned group)
{
	static const size_t size[] = { 8, 4 * KIB, 512, 128 * KIB, 64, 0, 16 * KIB, 300 * KIB };

	x->n = WINDOW / group * group;
	x->group = group;
	for (unsigned i = 0; i < x->n; i++) {
		x->m[i].sent = size[i % DR_ARRAY_LEN(size)];
		x->m[i].cap = x->m[i].sent + (i % 3 ? 0 : KIB);
	}
}

static void in_flight(struct probe *p, enum first first)
{
	struct exchange x = { .rounds = 6, .first = first };

	mixed(&x, 1);
	with_pair(p, &x);
}

static void window(struct probe *p)
{
	in_flight(p, FIRST_RECEIVES);
}

static void unexpected(struct probe *p)
{
	in_flight(p, FIRST_SENDS);
}

/* More messages than a plugin has requests. */
static void many(struct probe *p)
{
	const struct exchange x = {
		.n = 2, .m = { { 64, 64 }, { 8, 64 } }, .rounds = 600, .group = 1
	};

	with_pair(p, &x);
}

/* Group sizes up to maxRecvs; all tags different, all equal, two. */
static void grouped(struct probe *p)
{
	struct exchange x = { .rounds = 2 };
	struct dr_nccl_properties q;
	struct pair c;

	if (!CALL(p, CALL_PROPERTIES, dr_nccl_properties(&p->n, p->dev, &q)) || !pair_open(p, &c))
		return;
	for (int group = DR_MIN(q.max_recvs, (int)DR_NCCL_GROUP_MAX); group > 0; group /= 2)
		for (x.tags = 0; x.tags < 3 && !p->dead; x.tags++) {
			mixed(&x, (unsigned)group);
			x.first = x.tags == 2 ? FIRST_SENDS : FIRST_BOTH;
			(void)pair_exchange(p, &c, &x);
			x.key += x.rounds * WINDOW;
		}
	pair_close(p, &c);
}

/* Two comms, one in each direction of two processes, at the same time. */
static void both_ways(struct probe *p)
{
	struct exchange x[2] = { { .n = 8, .rounds = 4, .group = 1, .key = 0 },
		{ .n = 8, .rounds = 4, .group = 1, .key = 100000 } };
	struct pair c[2] = { { .send = NULL } };
	struct run r[2];
	bool more[2] = { true, true };

	for (int i = 0; i < 2; i++) {
		for (unsigned k = 0; k < x[i].n; k++)
			x[i].m[k] = (struct message){ MIB, MIB };
		if (!pair_open(p, &c[i]))
			return;
	}
	for (int i = 0; i < 2; i++)
		if (!run_open(&r[i], p, &c[i], &x[i]))
			return;
	while ((more[0] || more[1]) && !p->dead)
		for (int i = 0; i < 2 && !p->dead; i++)
			more[i] = more[i] && run_step(&r[i]);
	for (int i = 0; i < 2 && !p->dead; i++)
		(void)run_close(&r[i]);
	for (int i = 0; i < 2; i++)
		pair_close(p, &c[i]);
}

/* ---- closing with requests outstanding ---- */

enum { ABANDONED = 8, EACH = 256 * KIB, AFTER = 0x44 };

static bool post_and_abandon(
	struct probe *p, const struct pair *c, struct region *from, struct region *to)
{
	for (unsigned i = 0; i < ABANDONED && !p->dead; i++) {
		struct dr_nccl_buffer b = from->b, d = to->b;
		void *request;

		b.data = (char *)from->b.data + (size_t)i * EACH;
		d.data = (char *)to->b.data + (size_t)i * EACH;
		b.size = d.size = EACH;
		CALL(p, CALL_IRECV, dr_nccl_irecv(&p->n, c->recv, 1, &d, &request));
		if (!p->dead)
			CALL(p, CALL_ISEND, dr_nccl_isend(&p->n, c->send, &b, &request));
	}
	return !p->dead && region_dereg(p, from) && region_dereg(p, to);
}

static void abandon(struct probe *p)
{
	struct region from, to;
	struct pair c, next;

	if (!pair_open(p, &c) || !region_open(p, c.send, (size_t)ABANDONED * EACH, &from) ||
		!region_open(p, c.recv, (size_t)ABANDONED * EACH, &to) ||
		!post_and_abandon(p, &c, &from, &to))
		return;
	memset(to.b.data, AFTER, to.b.size);
	pair_close(p, &c);
	if (p->dead || !pair_open(p, &next))
		return;
	ping(p, &next, 0);
	pair_close(p, &next);
	for (size_t i = 0; i < to.b.size; i++)
		if (((const unsigned char *)to.b.data)[i] != AFTER) {
			plugin_found(p->sh, RULE_LATE,
				"byte %zu of a receive's memory was written after deregMr", i);
			return;
		}
	region_free(&from);
	region_free(&to);
}

const struct plugin_case plugin_cases[] = {
	{ "comms", "several comms, opened and closed", comms },
	{ "sizes", "single messages of 0 bytes to 3 MiB, sent before and after their receive",
		sizes },
	{ "window", "32 messages in flight, received in order", window },
	{ "unexpected", "32 messages sent before their receives", unexpected },
	{ "grouped", "receives with several buffers and tags, up to maxRecvs", grouped },
	{ "many", "more messages than there are requests", many },
	{ "both-ways", "two comms in opposite directions at once", both_ways },
	{ "abandon", "deregMr and close with requests outstanding", abandon },
	{ "reopen", "20 comms one after the other", reopen },
};
const size_t plugin_n_cases = DR_ARRAY_LEN(plugin_cases);
