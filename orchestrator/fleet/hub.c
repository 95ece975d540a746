/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/hub.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * 1. A link belongs to no node until its OFFER was accepted (role JOINED).
 * 2. Actions of the coordinator are carried out in one place, which is not entered twice: an order for rank 0 may be
 *    reported before it returns.
 * 3. A report counts only if its attempt is the one that runs.
 */
enum role { UNKNOWN, IDENTIFIED, JOINED, DONE };
static const int64_t STAGE_NS = 10 * DR_NS_PER_S, KERNEL_SILENT_NS = 10 * DR_NS_PER_S;
/* All nodes of a job dial at once. A node needs three round trips until its OFFER is here. */
enum { PLACES = 48 };
static const int64_t PLACE_NS = 100 * DR_NS_PER_MS;

/* ---- sending ---- */

static void send_frame(
	struct dr_hub *h, struct dr_link *l, enum dr_conv_frame type, const json_t *msg)
{
	char *text = json_dumps(msg, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0;

	if (!text || dr_conv_send(&l->conv, type,
			     type == DR_CONV_FRAME_MESSAGE ? ++h->end[l->k].seq : 0, text, len))
		dr_link_abort(l);
	else
		dr_link_wake(l);
	h->bytes_sent += len;
	free(text); /* lint-ok: of jansson */
}

static void order(struct dr_hub *h, uint32_t rank, json_t *msg)
{
	struct dr_link *l = h->end[rank].link;

	if (rank == 0 && msg)
		h->o.local(h->o.arg, msg);
	else if (l && msg && l->conv.state == DR_CONV_OPEN)
		send_frame(h, l, DR_CONV_FRAME_MESSAGE, msg);
	json_decref(msg);
}

/* Where the client of this pair reaches the server: by the server's own connection, or, of rank 0, by the address that
 * the client itself dialled. */
static void server_address(
	const struct dr_hub *h, const struct dr_sweep_pair *p, char *buf, size_t len)
{
	const struct dr_link *server = h->end[p->server].link, *client = h->end[p->client].link;
	struct dr_addr a = { .len = sizeof(a.ss) };

	if (server)
		a = server->addr;
	else if (!client || getsockname(client->po.fd, (struct sockaddr *)&a.ss, &a.len))
		a.len = 0;
	if (a.len)
		dr_sa_set_port(&a.ss, 0);
	if (a.len)
		dr_addr_format(&a, buf, len);
	else
		snprintf(buf, len, "127.0.0.1");
}

static void order_run(struct dr_hub *h, const struct dr_coord_action *a)
{
	const struct dr_sweep_result *r = &h->coord.result[a->result];
	char host[DR_ADDR_TEXT];
	int port = h->end[r->pair.server].port;
	json_t *msg;

	server_address(h, &r->pair, host, sizeof(host));
	msg = json_pack("{s:s, s:I, s:i, s:b, s:s, s:i, s:I}", "op", "run", "id",
		(json_int_t)a->result, "attempt", r->attempts, "client", a->client, "host", host,
		"port", port, "time_ms", (json_int_t)(h->o.coord.pair_ns / DR_NS_PER_MS));
	if (r->way != DR_SWEEP_BOTH_WAYS)
		json_object_set_new(msg, "way", json_integer(r->way));
	order(h, a->rank, msg);
}

/* 2 */
static void pump(struct dr_hub *h, int64_t now_ns)
{
	struct dr_coord_action a;

	if (h->pumping)
		return;
	h->pumping = true;
	while (dr_coord_next(&h->coord, &a)) {
		if (a.act == DR_COORD_RUN)
			order_run(h, &a);
		else if (a.act == DR_COORD_STOP)
			order(h, a.rank,
				json_pack("{s:s, s:I, s:b}", "op", "stop", "id",
					(json_int_t)a.result, "client", a.client));
		else if (a.act == DR_COORD_LOOK) {
			h->o.look(h->o.arg);
			dr_coord_reviewed(&h->coord, now_ns);
		} else {
			h->over = true;
		}
	}
	h->pumping = false;
}

/* ---- receiving ---- */

static void take_nics(struct dr_sweep_node *n, const json_t *rows)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const json_t *speed = json_object_get(row, "speed_mbps");
		int k = dr_sweep_nic_index(n, dr_json_string(row, "name"));

		if (k < 0)
			continue;
		n->nic[k].told = true;
		n->nic[k].up = json_is_true(json_object_get(row, "up"));
		n->nic[k].carrier = json_is_true(json_object_get(row, "carrier"));
		n->nic[k].speed_mbps =
			json_is_integer(speed) ? json_integer_value(speed) : DR_UNSET;
	}
}

static void take_done(struct dr_hub *h, uint32_t rank, const json_t *msg, int64_t now_ns)
{
	const json_t *id = json_object_get(msg, "id");
	json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;
	bool client = json_is_true(json_object_get(msg, "client"));
	struct dr_sweep_result *r;

	if (i < 0 || (size_t)i >= h->coord.n_results)
		return;
	r = &h->coord.result[i];
	if ((client ? r->pair.client : r->pair.server) != rank ||
		json_integer_value(json_object_get(msg, "attempt")) != r->attempts ||
		!dr_coord_expects(&h->coord, (uint32_t)i, client))
		return;
	/* Otherwise it was stopped: the other node was lost. */
	if (client && r->state == DR_SWEEP_RUNNING &&
		dr_sweep_take(r, &h->node[r->pair.client], &h->node[r->pair.server], msg) ==
			-ENOMEM)
		dr_sweep_fail(r, "out of memory");
	take_nics(&h->node[rank], json_object_get(msg, "nics"));
	dr_coord_done(&h->coord, (uint32_t)i, client, now_ns);
}

/* The node that is here and shares the NICs of this offer; nodes: none. */
static uint32_t on_same_host(const struct dr_hub *h, const json_t *msg)
{
	const char *where = dr_json_string(msg, "where");
	uint32_t r = 0;

	while (r < h->o.coord.nodes &&
		(!*where || !dr_coord_is_here(&h->coord, r) || strcmp(h->end[r].where, where) != 0))
		r++;
	return r;
}

/* The whole offer is checked before anything is taken. */
static bool offer_fits(struct dr_hub *h, const json_t *msg, uint32_t *rank, char *why, size_t len)
{
	const json_t *r = json_object_get(msg, "rank");
	json_int_t version = json_integer_value(json_object_get(msg, "sweep"));
	json_int_t nodes = json_integer_value(json_object_get(msg, "nodes"));
	json_int_t port = json_integer_value(json_object_get(msg, "port"));
	json_int_t n = json_is_integer(r) ? json_integer_value(r) : -1;
	uint32_t other;

	why[0] = '\0';
	if (version != DR_SWEEP_VERSION)
		snprintf(why, len,
			"this is the coordinator of a sweep: start dualrail sweep of this version, not another "
			"command");
	else if (nodes != h->o.coord.nodes || n < 0 || n >= nodes || port < 1 || port > UINT16_MAX)
		snprintf(why, len, "rank %lld of %lld nodes, but this sweep has %u nodes",
			(long long)n, (long long)nodes, h->o.coord.nodes);
	else if (dr_coord_is_here(&h->coord, (uint32_t)n))
		snprintf(why, len, "rank %lld has joined already, from %.80s", (long long)n,
			h->node[n].address);
	else if (h->over)
		snprintf(why, len, "the sweep has ended");
	else if ((other = on_same_host(h, msg)) < h->o.coord.nodes) {
		snprintf(why, len,
			"its host has rank %u already; start one rank per node: srun -N NODES -n NODES, "
			"mpirun -N 1, mpiexec -ppn 1",
			other);
		dr_text_copy(h->node[n].reason, sizeof(h->node->reason), why);
	}
	*rank = (uint32_t)n;
	return !*why;
}

static void take_offer(struct dr_hub *h, uint32_t rank, const json_t *msg, int64_t now_ns)
{
	struct dr_sweep_node *n = &h->node[rank];

	/* A name in the host file is its name, an address is none. */
	if (!n->host[0] || dr_addr_parse(n->host, &(struct dr_addr){ .len = 0 }) == 0)
		dr_text_copy(n->host, sizeof(n->host), dr_json_string(msg, "host"));
	n->presence = DR_SWEEP_PRESENT;
	n->reason[0] = '\0';
	h->end[rank].port = (uint16_t)json_integer_value(json_object_get(msg, "port"));
	snprintf(h->end[rank].where, sizeof(h->end->where), "%s", dr_json_string(msg, "where"));
	h->end[rank].heard_ns = now_ns;
	take_nics(n, json_object_get(msg, "nics"));
	dr_info("sweep", "rank %u joined: %s %s", rank, n->host, n->address);
	dr_coord_joined(&h->coord, rank, now_ns);
}

static void lose(struct dr_hub *h, struct dr_link *l, const char *why, int64_t now_ns)
{
	uint32_t rank = l->k;

	l->role = DONE;
	h->end[rank].link = NULL;
	if (h->over)
		return;
	h->node[rank].presence = DR_SWEEP_LOST;
	snprintf(h->node[rank].reason, sizeof(h->node->reason), "%s", why);
	dr_warn("sweep", "rank %u (%s) is lost: %s", rank, h->node[rank].host, why);
	dr_coord_lost(&h->coord, rank, now_ns);
}

static void refuse(struct dr_hub *h, struct dr_link *l, const char *why, int64_t now_ns)
{
	dr_acceptor_warn(&h->acceptor, l, why, now_ns);
	l->role = DONE;
	dr_conv_refuse(&l->conv, DR_BOOT_DECLINED, 3, why);
	dr_link_close(l, now_ns);
}

static void offered(
	struct dr_hub *h, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	char why[200];
	uint32_t rank;
	json_t *ok;

	if (ev->type != DR_CONV_FRAME_OFFER || !offer_fits(h, ev->json, &rank, why, sizeof(why))) {
		refuse(h, l, ev->type == DR_CONV_FRAME_OFFER ? why : "an OFFER is expected",
			now_ns);
		return;
	}
	l->role = JOINED;
	l->k = rank;
	l->due_ns = DR_NEVER;
	h->end[rank].link = l;
	h->end[rank].seq = 0;
	snprintf(h->node[rank].address, sizeof(h->node->address), "%s", l->peer);
	ok = json_pack("{s:i}", "sweep", DR_SWEEP_VERSION);
	if (ok)
		send_frame(h, l, DR_CONV_FRAME_ACCEPT, ok);
	json_decref(ok);
	take_offer(h, rank, ev->json, now_ns);
}

static void joined_frame(
	struct dr_hub *h, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	h->end[l->k].heard_ns = now_ns;
	if (ev->type != DR_CONV_FRAME_MESSAGE)
		return;
	h->bytes_received += ev->len;
	if (strcmp(dr_json_string(ev->json, "op"), "done") == 0)
		take_done(h, l->k, ev->json, now_ns);
}

static void on_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_hub *h = l->owner;

	switch (ev->kind) {
	case DR_CONV_IDENTIFIED:
		if (l->conv.peer.purpose != DR_CONV_NEW) {
			refuse(h, l, "no session of this coordinator", now_ns);
			return;
		}
		l->role = IDENTIFIED;
		l->due_ns = now_ns + STAGE_NS;
		l->due_text = "no OFFER received after the hello";
		if (dr_conv_welcome(&l->conv, 0, now_ns))
			dr_link_abort(l);
		return;
	case DR_CONV_FRAME:
		if (l->role == IDENTIFIED)
			offered(h, l, ev, now_ns);
		else if (l->role == JOINED)
			joined_frame(h, l, ev, now_ns);
		return;
	case DR_CONV_FAILED:
		if (l->role == JOINED)
			lose(h, l, l->conv.err.text, now_ns);
		else if (l->role != DONE)
			dr_acceptor_warn(&h->acceptor, l, l->conv.err.text, now_ns);
		l->role = DONE;
		return;
	default:
		return;
	}
}

static void on_batch(struct dr_link *l, int64_t now_ns)
{
	pump(l->owner, now_ns);
}

/* ---- connections ---- */

static const struct dr_link_ops link_ops = { .event = on_event, .batch = on_batch };

static bool pending(const struct dr_link *l)
{
	return l->role == UNKNOWN || l->role == IDENTIFIED;
}

static void accepted(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns)
{
	struct dr_hub *h = dr_container_of(a, struct dr_hub, acceptor);
	struct dr_link_opts o = { .list = &h->links,
		.poller = h->o.poller,
		.ops = &link_ops,
		.owner = h,
		.silent_ns = KERNEL_SILENT_NS,
		.conv = { .role = DR_CONV_SERVER, .stage_ns = STAGE_NS, .key = h->o.key } };
	struct dr_link *l;
	int rc = dr_random_bytes(o.conv.hello.nonce, sizeof(o.conv.hello.nonce));

	snprintf(o.conv.hello.build, sizeof(o.conv.hello.build), "%s", DR_VERSION);
	rc = rc ? rc : dr_random_bytes(o.conv.ephemeral, sizeof(o.conv.ephemeral));
	if (rc || dr_link_accept(&o, fd, from, now_ns, &l))
		close(fd);
	else
		l->role = UNKNOWN;
}

static const struct dr_acceptor_ops acceptor_ops = { .accepted = accepted, .pending = pending };

static int listen_all(struct dr_hub *h, struct dr_err *e)
{
	struct dr_addr local[DR_ADDRS_MAX] = { { .len = 0 } };
	unsigned n = 1;
	int rc = h->o.control ? dr_addr_local(h->o.control, local, DR_ADDRS_MAX, &n, e) : 0;

	h->port = h->o.port;
	for (unsigned i = 0; i < n && rc == 0; i++) {
		dr_sa_set_port(&local[i].ss, h->port);
		rc = dr_acceptor_listen(&h->acceptor, &local[i], e);
		h->port = rc ? h->port : dr_sa_port(&local[i].ss);
	}
	return rc;
}

int dr_hub_create(struct dr_hub **out, const struct dr_hub_opts *o, struct dr_err *e)
{
	struct dr_hub *h = dr_calloc(1, sizeof(*h));
	int64_t now_ns = dr_now_ns();
	int rc;

	if (!h)
		return dr_err_set(e, -ENOMEM, "out of memory");
	h->o = *o;
	dr_acceptor_init(&h->acceptor, &acceptor_ops, o->poller, &h->links, "sweep");
	h->acceptor.allow = o->allow;
	h->acceptor.places = PLACES;
	h->acceptor.place_ns = PLACE_NS;
	h->node = dr_calloc(o->coord.nodes, sizeof(*h->node));
	h->end = dr_calloc(o->coord.nodes, sizeof(*h->end));
	rc = h->node && h->end ? dr_coord_init(&h->coord, &o->coord, now_ns) : -ENOMEM;
	if (rc)
		dr_err_set(e, rc, "out of memory");
	for (uint32_t i = 0; i < o->coord.nodes && rc == 0; i++)
		h->node[i].rank = i;
	rc = rc ? rc : listen_all(h, e);
	if (rc) {
		dr_hub_destroy(h);
		return rc;
	}
	h->ping_ns = now_ns + DR_SWEEP_PING_NS;
	*out = h;
	return 0;
}

void dr_hub_destroy(struct dr_hub *h)
{
	if (!h)
		return;
	dr_acceptor_fini(&h->acceptor);
	dr_links_free(&h->links);
	for (uint32_t i = 0; h->node && i < h->o.coord.nodes; i++)
		dr_sweep_node_fini(&h->node[i]);
	dr_coord_fini(&h->coord);
	dr_free(h->node);
	dr_free(h->end);
	dr_free(h);
}

void dr_hub_local(struct dr_hub *h, const json_t *msg, int64_t now_ns)
{
	if (json_object_get(msg, "sweep")) {
		snprintf(h->node[0].address, sizeof(h->node->address), "here");
		take_offer(h, 0, msg, now_ns);
	} else {
		take_done(h, 0, msg, now_ns);
	}
	pump(h, now_ns);
}

void dr_hub_stop(struct dr_hub *h, int64_t now_ns)
{
	dr_coord_stop(&h->coord);
	pump(h, now_ns);
}

void dr_hub_say_end(struct dr_hub *h, int exit_code, const char *text)
{
	for (uint32_t i = 1; i < h->o.coord.nodes; i++)
		if (h->end[i].link)
			order(h, i,
				json_pack("{s:s, s:i, s:s}", "op", "end", "exit_code", exit_code,
					"text", text));
}

bool dr_hub_is_idle(const struct dr_hub *h)
{
	for (uint32_t i = 1; i < h->o.coord.nodes; i++)
		if (h->end[i].link)
			return false;
	return true;
}

static void ping_all(struct dr_hub *h, int64_t now_ns)
{
	for (uint32_t i = 1; i < h->o.coord.nodes; i++) {
		struct dr_link *l = h->end[i].link;

		if (!l || l->conv.state != DR_CONV_OPEN)
			continue;
		if (now_ns - h->end[i].heard_ns > DR_SWEEP_SILENT_NS) {
			lose(h, l,
				"its host answers, its process does not: it is stopped or overloaded",
				now_ns);
			dr_link_abort(l);
		} else if (dr_conv_send(&l->conv, DR_CONV_FRAME_PING, 0, "\0\0\0\0\0\0\0\0", 8) ==
			   0) {
			dr_link_wake(l);
		}
	}
	h->ping_ns = now_ns + DR_SWEEP_PING_NS;
}

void dr_hub_tick(struct dr_hub *h, int64_t now_ns)
{
	if (now_ns >= h->ping_ns)
		ping_all(h, now_ns);
	/* A send that failed ended its link without an event. Dead links are freed below. */
	for (uint32_t i = 1; i < h->o.coord.nodes; i++)
		if (h->end[i].link && h->end[i].link->state == DR_LINK_DEAD)
			lose(h, h->end[i].link, "a message could not be sent", now_ns);
	dr_acceptor_tick(&h->acceptor, now_ns);
	dr_links_tick(&h->links, now_ns);
	dr_coord_tick(&h->coord, now_ns);
	pump(h, now_ns);
}

int64_t dr_hub_deadline(const struct dr_hub *h)
{
	int64_t d = DR_MIN(h->ping_ns, dr_coord_deadline(&h->coord));

	d = DR_MIN(d, dr_acceptor_deadline(&h->acceptor));
	return DR_MIN(d, dr_links_deadline(h->links));
}
