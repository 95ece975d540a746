/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/harness.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/mem.h"
#include "tests/fakeverbs/fakeverbs.h"
#include "tests/plugins/env.h"
#include "transport/kind.h"
#include "transport/ncclnet/kind.h"

#include <arpa/inet.h>
#include <libgen.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RING_BYTES = 64 << 20 };

static const char *const event_name[] = { "READY", "CREDIT", "SENT", "ARRIVING", "DELIVERED",
	"CTRL", "FENCED", "FAILED", "DGRAM", "INCOMING" };

/* ---- where rails are ---------------------------------------------------------------------------- */

struct place {
	char ifname[IFNAMSIZ];
	struct sockaddr_in addr;
};

static bool is_verbs(const struct cf_kind *k)
{
	return k->transport && strcmp(k->transport, "verbs") == 0;
}

/* "IFNAME,ADDR[,IFNAME,ADDR]": the i-th pair, the first one when there is no second. */
static bool place_from_env(const char *text, unsigned i, struct place *out)
{
	char addr[64], ifname2[IFNAMSIZ], addr2[64];
	int n = sscanf(text, "%15[^,],%63[^,],%15[^,],%63[^,]", out->ifname, addr, ifname2, addr2);

	if (n != 2 && n != 4)
		return false;
	if (i == 1 && n == 4) {
		memcpy(out->ifname, ifname2, sizeof(ifname2));
		memcpy(addr, addr2, sizeof(addr));
	}
	out->addr.sin_family = AF_INET;
	return inet_pton(AF_INET, addr, &out->addr.sin_addr) == 1;
}

static struct place place_of(const struct cf_kind *k, unsigned i)
{
	struct place at = { .ifname = "lo", .addr = { .sin_family = AF_INET } };
	const char *env = getenv("DR_VERBS_RAIL");

	at.addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
	if (is_verbs(k) && env && !place_from_env(env, i, &at))
		fail_msg("DR_VERBS_RAIL=%s is not IFNAME,ADDR[,IFNAME,ADDR]", env);
	return at;
}

/* The plugins' devices are the loopback interface. The files stay named as long as the process runs. */
static struct dr_nccl_params nccl_params(const struct cf_kind *k)
{
	static char file[2][512];
	char *out = file[strstr(k->file, "fake") != NULL], exe[256], env[64];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	(void)snprintf(out, sizeof(file[0]), "%s/%s", dirname(exe), k->file);
	assert_int_equal(setenv("FAKENET_IFNAME", "lo", 1), 0);
	assert_int_equal(setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1), 0);
	assert_int_equal(setenv("NCCL_DYNAMIC_CHUNK_SIZE", "65536", 1), 0);
	(void)snprintf(env, sizeof(env), "FAKENET=%s\nFAKENET_BUGS=%s\n", k->fake ? k->fake : "",
		k->busy ? "busy" : "");
	assert_int_equal(fakenet_env(env), 0);
	assert_int_equal(setenv("NCCL_SOCKET_IFNAME", "lo", 1), 0);
	assert_int_equal(setenv("HA_NCCL_TRANSPORT", "tcp", 1), 0);
	return (struct dr_nccl_params){ .file = out, .version = k->version };
}

/* Real devices give up later: an emulated machine may stand still for a while. */
static struct dr_verbs_params verbs_params(const struct cf_kind *k)
{
	struct dr_verbs_params vp;

	dr_verbs_params_init(&vp);
	vp.timeout = getenv("DR_VERBS_RAIL") ? 14 : 10;
	vp.retry = 3;
	vp.qps = k->qps ? k->qps : 1;
	return vp;
}

static const struct dr_fake_ctl *fake_nics(void)
{
	static const struct dr_fake_ctl *fake;

	if (!fake && !getenv("DR_VERBS_RAIL"))
		fake = dr_fake_attach("..");
	return fake;
}

void cf_pace(const struct cf *f, int64_t ns)
{
	if (is_verbs(f->kind) && fake_nics())
		fake_nics()->latency(NULL, ns);
}

const struct dr_transport_ops *cf_kind_ops(const struct cf_kind *k, const char **why)
{
	const struct dr_transport_ops *ops;

	if (!k->transport)
		return dr_sim_ops(k->personality);
	ops = dr_transport_find(k->transport);
	if (!ops)
		*why = "not in this build";
	if (!ops || !is_verbs(k) || getenv("DR_VERBS_RAIL") || fake_nics())
		return ops;
	*why = "no fake NICs (ibverbs_plugin.so) and no DR_VERBS_RAIL";
	return NULL;
}

/* ---- sinks: the promises that hold always ------------------------------------------------------ */

static void once(const struct cf_end *e, const struct dr_event *ev)
{
	for (unsigned i = 0; i < e->n; i++)
		if (e->log[i].ev.kind == ev->kind && e->log[i].ev.epoch == ev->epoch &&
			e->log[i].ev.seq == ev->seq && e->log[i].ev.part == ev->part)
			fail_msg("%s twice: epoch %u seq %llu part %u", event_name[ev->kind],
				ev->epoch, (unsigned long long)ev->seq, ev->part);
}

/* Messages are credited and delivered in order; parts of one may come in any. */
static void in_order(const struct cf_end *e, const struct dr_event *ev)
{
	for (unsigned i = e->n; i-- > 0;)
		if (e->log[i].ev.kind == ev->kind && e->log[i].ev.epoch == ev->epoch) {
			if (ev->seq < e->log[i].ev.seq)
				fail_msg("%s of seq %llu after seq %llu", event_name[ev->kind],
					(unsigned long long)ev->seq,
					(unsigned long long)e->log[i].ev.seq);
			return;
		}
}

static void keep(struct cf_event *log, unsigned *n, unsigned *count, const struct dr_event *ev)
{
	assert_true(*n < CF_EVENTS_MAX);
	log[*n].ev = *ev;
	if (ev->kind == DR_EV_CTRL || ev->kind == DR_EV_DGRAM) {
		assert_true(ev->len >= 1 && ev->len <= DR_DGRAM_MAX);
		memcpy(log[*n].bytes, ev->data, ev->len);
	}
	(*n)++;
	count[ev->kind]++;
}

static void on_path_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct cf_end *e = dr_container_of(sink, struct cf_end, sink);

	if (!e->inside)
		fail_msg("%s outside progress", event_name[ev->kind]);
	if (e->closed)
		fail_msg("%s after close", event_name[ev->kind]);
	if (e->failed && ev->kind != DR_EV_FENCED)
		fail_msg("%s after FAILED", event_name[ev->kind]);
	if (e->count[DR_EV_FENCED] && ev->kind == DR_EV_FENCED && e->failed)
		fail_msg("FENCED twice");
	assert_ptr_equal(ev->path, e->path);
	assert_ptr_equal(ev->rail, e->rail);
	assert_true(ev->kind != DR_EV_DGRAM && ev->kind != DR_EV_INCOMING);
	if (ev->kind == DR_EV_SENT || ev->kind == DR_EV_DELIVERED || ev->kind == DR_EV_CREDIT)
		once(e, ev);
	if (ev->kind == DR_EV_DELIVERED || ev->kind == DR_EV_CREDIT)
		in_order(e, ev);
	if (ev->kind == DR_EV_FAILED) {
		assert_true(ev->err < 0);
		assert_non_null(ev->text);
		e->failed = true;
	}
	keep(e->log, &e->n, e->count, ev);
	if (e->hook)
		e->hook(e, ev);
}

static void on_rail_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct cf_end *e = dr_container_of(sink, struct cf_end, rail_sink);

	if (!e->inside)
		fail_msg("%s of the rail outside rail_progress", event_name[ev->kind]);
	assert_null(ev->path);
	assert_ptr_equal(ev->rail, e->rail);
	keep(e->rail_log, &e->rail_n, e->rail_count, ev);
}

int cf_progress(struct cf *f, unsigned end)
{
	struct cf_end *e = &f->end[end];
	unsigned before = e->n;
	int n;

	if (!e->path)
		return 0;
	e->inside = true;
	n = dr_path_progress(e->path, cf_now(f), &e->sink);
	e->inside = false;
	assert_int_equal(n, (int)(e->n - before));
	assert_true(n <= CF_PROGRESS_EVENTS_MAX);
	return n;
}

static int rail_progress(struct cf *f, unsigned end)
{
	struct cf_end *e = &f->end[end];
	bool inside = e->inside; /* of a path: see rail_dgram */
	unsigned before = e->rail_n;
	int n;

	if (!e->rail)
		return 0;
	e->inside = true;
	n = f->ops->rail_progress(e->rail, cf_now(f), &e->rail_sink);
	e->inside = inside;
	assert_true(n >= (int)(e->rail_n - before)); /* what is no event counts, too */
	return n;
}

static void path_ready(void *arg, int64_t now_ns)
{
	struct cf_end *e = arg;

	(void)now_ns;
	cf_progress(e->f, e->node);
}

static void rail_ready(void *arg, int64_t now_ns)
{
	struct cf_end *e = arg;

	(void)now_ns;
	rail_progress(e->f, e->node);
}

/* ---- time -------------------------------------------------------------------------------------- */

int64_t cf_now(const struct cf *f)
{
	return f->world ? dr_sim_world_now(f->world) : dr_now_ns();
}

/* Copies end by being looked at, whatever the time. */
static bool cf_copying(const struct cf *f)
{
	return f->copier && copier_busy(f->copier) > 0;
}

int cf_turn(struct cf *f)
{
	unsigned before = f->end[0].n + f->end[0].rail_n + f->end[1].n + f->end[1].rail_n, i;
	int n = 0;

	if (f->poller) {
		assert_true(dr_poller_wait(f->poller, 10 * DR_NS_PER_MS) >= 0);
		return (int)(f->end[0].n + f->end[0].rail_n + f->end[1].n + f->end[1].rail_n -
			     before);
	}
	for (i = 0; i < 2; i++)
		n += rail_progress(f, i) + cf_progress(f, i);
	if (!f->world || n > 0 || cf_copying(f))
		return n;
	if (!dr_sim_world_busy(f->world, 0) && !dr_sim_world_busy(f->world, 1)) {
		int64_t next = dr_sim_world_next(f->world);

		if (next == DR_NEVER)
			next = cf_now(f) + DR_NS_PER_S;
		if (f->until_ns > 0)
			next = DR_MIN(next, f->until_ns);
		dr_sim_world_step(f->world, next);
	}
	return n;
}

void cf_run(struct cf *f, int64_t for_ns)
{
	f->until_ns = cf_now(f) + for_ns;
	while (cf_now(f) < f->until_ns)
		cf_turn(f);
	f->until_ns = 0;
}

/* Simulated: nothing under way, or 30 s on. Real: no event for 30 ms, a hundred round trips. */
void cf_quiet(struct cf *f)
{
	int64_t until = cf_now(f) + (f->world ? 30 * DR_NS_PER_S : 30 * DR_NS_PER_MS);

	while (cf_now(f) < until) {
		if (f->world && dr_sim_world_next(f->world) == DR_NEVER && !cf_copying(f) &&
			!dr_sim_world_busy(f->world, 0) && !dr_sim_world_busy(f->world, 1))
			break;
		if (cf_turn(f) > 0 && !f->world)
			until = cf_now(f) + 30 * DR_NS_PER_MS;
	}
}

/* ---- up and down ------------------------------------------------------------------------------- */

static void open_rail(struct cf *f, unsigned i)
{
	struct dr_sim_rail_params sim = { .world = f->world, .node = i };
	struct dr_faulty_rail_params faulty = { f->faulty, &sim };
	struct dr_staged_rail_params staged = { f->staged, NULL };
	struct dr_verbs_params vp = verbs_params(f->kind);
	struct dr_nccl_params np = { 0 };
	struct place at = place_of(f->kind, i);
	struct cf_end *e = &f->end[i];
	struct dr_rail_params p = {
		.ifname = at.ifname, .poller = f->poller, .ready = rail_ready, .arg = e
	};
	struct dr_err err = { 0 };

	p.kind_params = f->world ? (void *)&sim : is_verbs(f->kind) ? (void *)&vp : NULL;
	if (f->kind->file) {
		np = nccl_params(f->kind);
		p.kind_params = &np;
	}
	faulty.inner = p.kind_params;
	if (f->kind->faulty)
		p.kind_params = &faulty;
	staged.inner = p.kind_params;
	if (f->kind->staged)
		p.kind_params = &staged;
	memcpy(&p.local, &at.addr, sizeof(at.addr));
	memcpy(p.token, f->token, sizeof(p.token));
	e->f = f;
	e->node = i;
	e->sink.event = on_path_event;
	e->rail_sink.event = on_rail_event;
	e->log = dr_calloc(CF_EVENTS_MAX, sizeof(*e->log));
	e->rail_log = dr_calloc(CF_EVENTS_MAX, sizeof(*e->rail_log));
	assert_true(e->log && e->rail_log);
	if (f->ops->listen(&p, &e->rail, &err))
		fail_msg("listen: %s", err.text);
}

void cf_open(struct cf *f, const struct cf_kind *k)
{
	uint8_t handle[DR_HANDLE_MAX];
	const char *why = NULL;
	struct dr_err err = { 0 };

	memset(f, 0, sizeof(*f));
	assert_int_equal(dr_random_bytes(f->token, sizeof(f->token)), 0);
	f->kind = k;
	f->ops = cf_kind_ops(k, &why);
	if (!k->transport) {
		struct dr_sim_opts o;

		dr_sim_opts_init(&o);
		o.personality = k->personality;
		assert_int_equal(dr_sim_world_create(1, &o, &f->world), 0);
	}
	if (k->poller)
		assert_int_equal(dr_poller_create(&f->poller, NULL), 0);
	if (k->faulty) {
		struct dr_faulty_opts o = { .seed = 1 };

		assert_int_equal(dr_faulty_create(f->ops, &o, &f->faulty), 0);
		f->ops = &f->faulty->ops;
	}
	if (k->staged) {
		struct dr_staged_params sp = { f->ops, &copier_ops, NULL, NULL,
			k->ring_bytes ? k->ring_bytes : (size_t)RING_BYTES };

		copier_create(&k->copier, &f->copier);
		sp.arg = f->copier;
		assert_int_equal(dr_staged_create(&sp, &f->staged, NULL), 0);
		f->ops = dr_staged_ops(f->staged);
	}
	for (unsigned i = 0; i < 2; i++)
		open_rail(f, i);
	for (unsigned i = 0; i < 2; i++) {
		int n = f->ops->rail_handle(f->end[!i].rail, handle, sizeof(handle));

		assert_true(n > 0 && n <= DR_HANDLE_MAX);
		if (f->ops->rail_peer(f->end[i].rail, handle, (size_t)n, &err))
			fail_msg("rail_peer: %s", err.text);
	}
}

/* Nothing of a fake NIC is left over, and nothing was misused. */
static void check_nics(const struct cf *f)
{
	const struct dr_fake_ctl *fake = is_verbs(f->kind) ? fake_nics() : NULL;
	const char *first = "";

	if (!fake)
		return;
	if (fake->violations(&first) > 0)
		print_error("fake NICs: %s\n", first);
	assert_int_equal(fake->violations(&first), 0);
	assert_int_equal(fake->alive_total(), 0);
}

void cf_shut(struct cf *f)
{
	uint64_t violations = f->world ? dr_sim_world_violations(f->world) : 0;
	char text[256] = "";

	if (violations)
		strncpy(text, dr_sim_world_violation(f->world), sizeof(text) - 1);
	for (unsigned i = 0; i < 2; i++)
		cf_destroy(f, i);
	for (unsigned i = 0; i < 2; i++) {
		struct cf_end *e = &f->end[i];

		if (e->rail) {
			if (e->mr)
				assert_int_equal(f->ops->mr_dereg(e->rail, e->mr), 0);
			f->ops->rail_close(e->rail);
			f->ops->rail_fini(e->rail);
		}
		dr_pages_free(e->mem, e->mem_len);
		dr_free(e->log);
		dr_free(e->rail_log);
	}
	check_nics(f);
	dr_staged_destroy(f->staged);
	copier_destroy(f->copier);
	dr_poller_destroy(f->poller);
	dr_faulty_destroy(f->faulty);
	dr_sim_world_destroy(f->world);
	if (violations && !f->violations_wanted)
		fail_msg("%llu violations, the first %s", (unsigned long long)violations, text);
}

void cf_memory(struct cf *f, size_t len)
{
	struct dr_err err = { 0 };

	for (unsigned i = 0; i < 2; i++) {
		struct cf_end *e = &f->end[i];
		struct dr_memory m = { .len = len,
			.kind = f->staged ? DR_MEMORY_CUDA : DR_MEMORY_HOST };

		e->mem = dr_pages_alloc(len);
		e->mem_len = len;
		assert_non_null(e->mem);
		memset(e->mem, 0xee, len);
		m.base = e->mem;
		if (f->ops->mr_reg(e->rail, &m, &e->mr, &err))
			fail_msg("mr_reg: %s", err.text);
	}
}

void cf_create(struct cf *f, unsigned end, uint32_t gen, unsigned connector_end)
{
	struct cf_end *e = &f->end[end];
	struct dr_path_params p = { .channel = CF_CHANNEL,
		.index = CF_INDEX,
		.gen = gen,
		.sender = end == S,
		.connector = end == connector_end,
		.ready = path_ready,
		.arg = e };
	struct dr_err err = { 0 };

	assert_null(e->path);
	if (f->ops->create(e->rail, &p, &e->path, &err))
		fail_msg("create: %s", err.text);
	assert_ptr_equal(e->path->ops, f->ops);
	assert_ptr_equal(e->path->rail, e->rail);
	e->gen = gen;
	e->n = 0;
	e->failed = e->closed = false;
	memset(e->count, 0, sizeof(e->count));
}

int cf_connect(struct cf *f, unsigned end)
{
	uint8_t handle[DR_HANDLE_MAX];
	struct dr_err err = { 0 };
	int n = 0;

	if (f->end[!end].path) {
		n = f->ops->handle(f->end[!end].path, handle, sizeof(handle));
		assert_true(n >= 0 && n <= DR_HANDLE_MAX);
	}
	return f->ops->connect(f->end[end].path, handle, (size_t)n, cf_now(f), &err);
}

void cf_destroy(struct cf *f, unsigned end)
{
	struct cf_end *e = &f->end[end];

	if (!e->path)
		return;
	f->ops->close(e->path);
	e->closed = true;
	(void)cf_progress(f, end); /* reports nothing: checked by the sink */
	f->ops->close(e->path);
	assert_int_equal(f->ops->stop(e->path), 0);
	assert_int_equal(f->ops->stop(e->path), 0);
	f->ops->fini(e->path);
	e->path = NULL;
}

void cf_up(struct cf *f, uint32_t gen)
{
	for (unsigned i = 0; i < 2; i++)
		cf_create(f, i, gen, S);
	assert_int_equal(cf_connect(f, R), 0);
	assert_int_equal(cf_connect(f, S), 0);
	cf_until(f, f->end[S].count[DR_EV_READY] == 1 && f->end[R].count[DR_EV_READY] == 1);
}

/* ---- data -------------------------------------------------------------------------------------- */

uint8_t cf_byte(uint64_t seq, unsigned part, size_t off)
{
	return (uint8_t)(seq * 131 + part * 31 + off * 7 + off / 251 + 1);
}

void cf_fill(uint8_t *to, uint64_t seq, unsigned part, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = cf_byte(seq, part, i);
}

void cf_check(const uint8_t *at, uint64_t seq, unsigned part, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != cf_byte(seq, part, i))
			fail_msg("seq %llu part %u: byte %zu of %zu is %02x, not %02x",
				(unsigned long long)seq, part, i, len, at[i],
				cf_byte(seq, part, i));
}

struct dr_part cf_part(struct cf *f, unsigned end, uint64_t off, uint32_t len)
{
	return (struct dr_part){
		.mr = f->end[end].mr, .off = off, .len = len, .tag = (uint32_t)off
	};
}

/* Wait out back-pressure: a post that says -EAGAIN took nothing and works after progress. */
#define POST(f, rc, call)                                                                          \
	do {                                                                                       \
		int64_t post_deadline = cf_now(f) + CF_WAIT_NS;                                    \
		while (((rc) = (call)) == -EAGAIN && cf_now(f) < post_deadline)                    \
			cf_turn(f);                                                                \
	} while (0)

void cf_recv(struct cf *f, uint32_t epoch, uint64_t seq, const struct dr_part *parts, unsigned n,
	uint32_t skip)
{
	struct dr_path *p = f->end[R].path;
	int rc;

	POST(f, rc, dr_path_post_recv(p, epoch, seq, parts, n, skip));
	assert_int_equal(rc, 0);
	dr_path_flush(p, cf_now(f));
}

void cf_send(struct cf *f, uint32_t epoch, uint64_t seq, unsigned part, uint64_t off, uint32_t len)
{
	struct dr_path *p = f->end[S].path;
	struct dr_part what = cf_part(f, S, off, len);
	int rc;

	POST(f, rc, dr_path_post_send(p, epoch, seq, part, &what));
	assert_int_equal(rc, 0);
	dr_path_flush(p, cf_now(f));
}

void cf_ctrl(struct cf *f, unsigned end, const void *frame, size_t len)
{
	struct dr_path *p = f->end[end].path;
	int rc;

	POST(f, rc, dr_path_post_ctrl(p, frame, len));
	assert_int_equal(rc, 0);
	dr_path_flush(p, cf_now(f));
}

void cf_break(struct cf *f, unsigned end)
{
	if (f->world) {
		struct dr_path *p = dr_staged_inner(f->end[end].path);

		if (f->faulty)
			p = dr_faulty_inner(p);
		dr_sim_path_break(p, 1u << end, -ECONNRESET);
	} else {
		cf_destroy(f, !end);
		/* Where the peer's end is not seen, the hardware finds out about what is sent. */
		if (!(f->ops->caps & DR_CAP_RESET) &&
			dr_path_post_ctrl(f->end[end].path, "x", 1) == 0)
			dr_path_flush(f->end[end].path, cf_now(f));
	}
	cf_until(f, f->end[end].count[DR_EV_FAILED] == 1);
}

const struct cf_event *cf_nth(const struct cf_end *e, enum dr_event_kind kind, unsigned n)
{
	for (unsigned i = 0; i < e->n; i++)
		if (e->log[i].ev.kind == kind && n-- == 0)
			return &e->log[i];
	return NULL;
}

int cf_delivered_at(const struct cf_end *e, uint64_t seq, unsigned part)
{
	for (unsigned i = 0; i < e->n; i++)
		if (e->log[i].ev.kind == DR_EV_DELIVERED && e->log[i].ev.seq == seq &&
			e->log[i].ev.part == part)
			return (int)i;
	return -1;
}
