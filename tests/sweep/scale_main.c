/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/fleet/hub.h"
#include "orchestrator/fleet/member.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A coordinator with thousands of nodes: scale_main NODES [all-pairs|ring|bisection] [NICS]. The nodes are another process, with a
 * connection, a handshake and an answer each; their runs take no time and have figures of NICS NICs (8). Prints what a node costs the
 * coordinator. Status 1: it did not end, or a pair was not measured.
 */
struct node {
	struct dr_member m;
	struct fleet *fleet;
	bool ended;
};

struct fleet {
	struct dr_poller *poller;
	struct node *node;
	uint32_t n, left;
	unsigned nics;
};

static void die(const char *what)
{
	fprintf(stderr, "scale: %s\n", what);
	exit(1);
}

static long rss_bytes(void)
{
	long pages = 0, all = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2)
		die("no /proc/self/statm");
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

/* ---- nodes ---- */

static json_t *figures(unsigned nics)
{
	json_t *lanes = json_array();
	char nic[16];

	for (unsigned i = 0; i < 2 * nics; i++) {
		snprintf(nic, sizeof(nic), "eth%u", i / 2);
		json_array_append_new(
			lanes, json_pack("[s,s,b,f,i]", nic, nic, (int)(i % 2), 96.25 + i, 0));
	}
	return json_pack("{s:i, s:s, s:n, s:o, s:[]}", "exit_code", 0, "text", "", "rtt_us",
		"lanes", lanes, "unused");
}

static void on_order(void *arg, const json_t *msg, int64_t now_ns)
{
	struct node *n = arg;
	const char *op = json_string_value(json_object_get(msg, "op"));
	bool client = json_is_true(json_object_get(msg, "client"));
	json_t *done;

	if (op && strcmp(op, "end") == 0) {
		dr_member_close(&n->m, now_ns);
		n->ended = true;
		n->fleet->left--;
	}
	if (!op || strcmp(op, "run") != 0)
		return;
	done = client ? figures(n->fleet->nics) : json_object();
	json_object_set_new(done, "op", json_string("done"));
	json_object_set(done, "id", json_object_get(msg, "id"));
	json_object_set(done, "attempt", json_object_get(msg, "attempt"));
	json_object_set_new(done, "client", json_boolean(client));
	dr_member_send(&n->m, done);
	json_decref(done);
}

static json_t *offer_of(uint32_t rank, uint32_t nodes)
{
	return json_pack("{s:i, s:I, s:I, s:s, s:i, s:[]}", "sweep", 1, "rank", (json_int_t)rank,
		"nodes", (json_int_t)nodes, "host", "simulated", "port", 1, "nics");
}

static void run_nodes(uint32_t nodes, uint16_t port, unsigned nics)
{
	struct fleet f = { .n = nodes, .left = nodes - 1, .nics = nics };
	json_t **offer = dr_calloc(nodes, sizeof(json_t *));
	struct dr_err e;

	f.node = dr_calloc(nodes, sizeof(*f.node));
	if (!f.node || !offer || dr_poller_create(&f.poller, &e))
		die("nodes: no memory");
	for (uint32_t i = 1; i < nodes; i++) {
		const struct dr_member_opts o = { .poller = f.poller,
			.host = "127.0.0.1",
			.port = port,
			.offer = offer[i] = offer_of(i, nodes),
			.until_ns = dr_now_ns() + 300 * DR_NS_PER_S,
			.message = on_order,
			.arg = &f.node[i] };

		f.node[i].fleet = &f;
		if (dr_member_init(&f.node[i].m, &o, &e))
			die(e.text);
	}
	while (f.left > 0) {
		int64_t now_ns = dr_now_ns();

		for (uint32_t i = 1; i < nodes; i++) {
			dr_member_tick(&f.node[i].m, now_ns);
			if (f.node[i].m.failed && !f.node[i].ended)
				die(f.node[i].m.err.text);
		}
		dr_poller_wait(f.poller, 20 * DR_NS_PER_MS);
	}
	_exit(0);
}

/* ---- the coordinator ---- */

struct zero {
	struct dr_hub *hub;
	unsigned nics;
};

/* Rank 0 is a node as well. */
static void order_zero(void *arg, const json_t *msg)
{
	struct zero *z = arg;
	const char *op = json_string_value(json_object_get(msg, "op"));
	bool client = json_is_true(json_object_get(msg, "client"));
	json_t *done;

	if (!op || strcmp(op, "run") != 0)
		return;
	done = client ? figures(z->nics) : json_object();
	json_object_set(done, "id", json_object_get(msg, "id"));
	json_object_set(done, "attempt", json_object_get(msg, "attempt"));
	json_object_set_new(done, "client", json_boolean(client));
	dr_hub_local(z->hub, done, dr_now_ns());
	json_decref(done);
}

static void look(void *arg)
{
	(void)arg;
}

static void step(struct dr_hub *hub, int64_t until_ns)
{
	int64_t now_ns = dr_now_ns();

	if (now_ns > until_ns)
		die("it takes too long");
	dr_hub_tick(hub, now_ns);
	dr_poller_wait(hub->o.poller, 20 * DR_NS_PER_MS);
}

static const struct dr_pattern_ops *pattern_of(const char *name)
{
	static const struct dr_pattern_ops *const all[] = { &dr_pattern_all_pairs, &dr_pattern_ring,
		&dr_pattern_bisection };

	for (size_t i = 0; i < DR_ARRAY_LEN(all); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	die("no such pattern");
	return NULL;
}

static void raise_files(uint32_t nodes)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		die("getrlimit");
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) || r.rlim_max < nodes + 64) {
		fprintf(stderr, "scale: the limit of open files is %llu\n",
			(unsigned long long)r.rlim_max);
		exit(77);
	}
}

int main(int argc, char **argv)
{
	uint32_t nodes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	struct zero z = { .nics = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 8 };
	struct dr_hub_opts o = { .coord = { .nodes = nodes,
					 .pattern = pattern_of(argc > 2 ? argv[2] : "ring"),
					 .join_ns = 300 * DR_NS_PER_S,
					 .pair_ns = 300 * DR_NS_PER_S },
		.control = "127.0.0.1",
		.local = order_zero,
		.look = look,
		.arg = &z };
	struct dr_err e;
	size_t ok = 0;
	int status = 0;

	if (nodes < 2)
		die("usage: scale_main NODES [PATTERN] [NICS]");
	dr_log_set_level(DR_LOG_WARN);
	raise_files(nodes);
	if (dr_poller_create(&o.poller, &e) || dr_hub_create(&z.hub, &o, &e))
		die(e.text);
	long rss = rss_bytes();
	int64_t begin_ns = dr_now_ns(), until_ns = begin_ns + 600 * DR_NS_PER_S;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_nodes(nodes, z.hub->port, z.nics);
	}
	while (z.hub->coord.present < nodes - 1)
		step(z.hub, until_ns);
	int64_t joined_ns = dr_now_ns();
	long rss_joined = rss_bytes();
	json_t *offer = offer_of(0, nodes);

	dr_hub_local(z.hub, offer, joined_ns);
	while (!z.hub->over)
		step(z.hub, until_ns);
	int64_t over_ns = dr_now_ns();
	long rss_over = rss_bytes();

	for (size_t i = 0; i < z.hub->coord.n_results; i++)
		ok += z.hub->coord.result[i].state == DR_SWEEP_OK;
	printf("nodes %u pairs %zu ok %zu rounds %u join_s %.2f run_s %.2f bytes_per_node %ld bytes_per_pair %ld "
	       "sent_per_node %llu received_per_node %llu\n",
		nodes, z.hub->coord.n_results, ok, z.hub->coord.rounds,
		(double)(joined_ns - begin_ns) / 1e9, (double)(over_ns - joined_ns) / 1e9,
		(rss_joined - rss) / (long)nodes,
		(rss_over - rss_joined) / (long)z.hub->coord.n_results,
		(unsigned long long)z.hub->bytes_sent / nodes,
		(unsigned long long)z.hub->bytes_received / nodes);
	dr_hub_say_end(z.hub, 0, "");
	while (!dr_hub_is_idle(z.hub))
		step(z.hub, until_ns);
	waitpid(pid, &status, 0);
	status = ok == z.hub->coord.n_results ? status : 1;
	json_decref(offer);
	dr_hub_destroy(z.hub);
	dr_poller_destroy(o.poller);
	return status != 0;
}
