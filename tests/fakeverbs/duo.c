/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/duo.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <sys/mman.h>

enum { BYTES = DUO_WINDOW * DUO_LEN, WORDS = DUO_LEN / 8 };
static const int64_t LIMIT_NS = 60 * DR_NS_PER_S; /* of a wait, in the time of duo_now() */
static const int64_t STEP_NS = DR_NS_PER_MS;	  /* at most so much passes between two turns */
#define DEVICE_PTR UINT64_C(0x700000000000)	  /* points nowhere */

static int64_t clock_ns, read_ns; /* duo_now(); the monotonic clock when it was advanced last */

int64_t duo_now(void)
{
	return clock_ns;
}

static void advance(const struct dr_fake_ctl *fake)
{
	int64_t real = dr_now_ns();

	if (clock_ns == 0)
		clock_ns = read_ns = real;
	clock_ns += DR_MIN(real - read_ns, STEP_NS);
	read_ns = real;
	fake->time(clock_ns);
}

const struct dr_fake_ctl *duo_nics(const char *list)
{
	const struct dr_fake_ctl *fake;

	assert_int_equal(setenv("DR_FAKE_IBV", list, 1), 0);
	fake = dr_fake_attach("..");
	if (!fake)
		fail_msg("ibverbs_plugin.so is not built: make tests");
	fake->reset();
	return fake;
}

static unsigned end_of(const struct duo *d, const struct dr_channel *ch)
{
	return ch == d->ch[RECEIVER] ? RECEIVER : SENDER;
}

static void on_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now_ns)
{
	struct duo *d = arg;
	unsigned end = end_of(d, ch);

	(void)now_ns;
	d->err[end] = err;
	(void)snprintf(d->why[end], sizeof(d->why[end]), "%s", text);
}

static void on_silence(void *arg, bool stalled, int64_t silent_ns, int64_t now_ns)
{
	(void)silent_ns;
	if (stalled)
		((struct duo *)arg)->stalled_ns = now_ns;
}

static void on_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	struct duo *d = arg;

	(void)ch;
	if (rec->self_detected)
		(void)snprintf(d->cause, sizeof(d->cause), "%s", rec->cause);
}

static void on_rail(
	void *arg, unsigned rail, enum dr_rail_state state, const char *text, int64_t now_ns)
{
	(void)rail;
	(void)text;
	(void)now_ns;
	((struct duo *)arg)->downs += state == DR_RAIL_DOWN;
}

static const struct dr_manager_ops sender_ops = {
	.channel = { .failed = on_failed, .switched = on_switched },
	.rail = on_rail,
	.silence = on_silence,
};
static const struct dr_manager_ops receiver_ops = {
	.channel = { .failed = on_failed, .switched = on_switched }, .rail = on_rail
};

/* For messages to be checked it is mapped here; the kind never sees that address. */
static struct dr_memory gpu_memory(struct duo *d)
{
	d->fd = memfd_create("gpu", MFD_CLOEXEC);
	assert_true(d->fd >= 0);
	assert_int_equal(ftruncate(d->fd, BYTES), 0);
	d->buf[RECEIVER] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
	assert_true(d->buf[RECEIVER] != MAP_FAILED);
	return (struct dr_memory){ .base = (void *)DEVICE_PTR,
		.len = BYTES,
		.kind = DR_MEMORY_CUDA,
		.dmabuf = true,
		.dmabuf_fd = d->fd };
}

static struct dr_memory memory_of(struct duo *d, unsigned end)
{
	if (end == RECEIVER && d->o.cuda)
		return gpu_memory(d);
	d->buf[end] = dr_pages_alloc(BYTES);
	assert_non_null(d->buf[end]);
	return (struct dr_memory){ .base = d->buf[end], .len = BYTES };
}

static void open_end(struct duo *d, unsigned end)
{
	struct dr_manager_channel spec = { 0, d->o.rails - 1, end == SENDER };
	struct dr_verbs_params vp;
	struct dr_manager_params mp = { .transport = dr_transport_find("verbs"),
		.n_rails = d->o.rails,
		.connector = end == RECEIVER,
		.window = DUO_WINDOW,
		.heartbeat_ns = 20 * DR_NS_PER_MS,
		.detect = DR_DETECT_FAST,
		.failback = true,
		.hold_down_ns = 50 * DR_NS_PER_MS,
		.lost_after_ns = d->o.waits_long ? 60 * DR_NS_PER_S : 0,
		.ops = end == SENDER ? &sender_ops : &receiver_ops,
		.arg = d,
		.kind_params = &vp };
	struct dr_memory m = memory_of(d, end);
	struct dr_err e = { 0 };

	dr_verbs_params_init(&vp);
	vp.lazy_mr = d->o.lazy;
	memset(mp.token, 3, sizeof(mp.token));
	for (unsigned rail = 0; rail < d->o.rails; rail++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK + d->o.address + 2 * rail + end) };

		mp.rail[rail].ifname = "lo";
		memcpy(&mp.rail[rail].local, &a, sizeof(a));
	}
	if (d->o.peer && dr_peer_create(&mp, NULL, &d->peer[end], &e))
		fail_msg("peer: %s", e.text);
	mp.peer = d->peer[end];
	if (dr_manager_create(&mp, &d->m[end], &e))
		fail_msg("create: %s", e.text);
	if (dr_manager_open_channel(d->m[end], 0, &spec, &d->ch[end], &e))
		fail_msg("open: %s", e.text);
	if (dr_channel_mem_reg(d->ch[end], &m, &d->mem[end], &e))
		fail_msg("register: %s", e.text);
}

static void introduce_peer(struct duo *d, unsigned end)
{
	struct dr_handle h[2];
	struct dr_err e = { 0 };

	for (unsigned i = 0; i < d->o.rails; i++)
		assert_int_equal(dr_peer_handle(d->peer[!end], i, &h[i]), 0);
	if (dr_peer_start(d->peer[end], h, d->o.rails, duo_now(), &e))
		fail_msg("peer: %s", e.text);
}

static void introduce(struct duo *d, unsigned end)
{
	struct dr_handle h[2];
	struct dr_err e = { 0 };
	unsigned n = dr_manager_handle_count(d->m[end]);

	if (d->o.peer)
		introduce_peer(d, end);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(dr_manager_handle(d->m[!end], i, &h[i]), 0);
	if (dr_manager_start(d->m[end], h, n, duo_now(), &e))
		fail_msg("start: %s", e.text);
	assert_int_equal(dr_channel_handle(d->ch[!end], h), 0);
	if (dr_channel_start(d->ch[end], h, duo_now(), &e))
		fail_msg("start: %s", e.text);
}

void duo_open(struct duo *d, const struct dr_fake_ctl *fake, const struct duo_opts *o)
{
	memset(d, 0, sizeof(*d));
	d->o = *o;
	d->fake = fake;
	d->fd = -1;
	advance(fake);
	open_end(d, SENDER);
	open_end(d, RECEIVER);
	introduce(d, SENDER);
	introduce(d, RECEIVER);
}

static void receive(struct duo *d)
{
	struct dr_span s = { .mem = &d->mem[RECEIVER], .len = DUO_LEN };
	uint64_t seq;

	for (; d->posted < d->taken + DUO_WINDOW; d->posted++) {
		s.off = d->posted % DUO_WINDOW * DUO_LEN;
		if (dr_channel_recv(d->ch[RECEIVER], &s, 1, &seq, duo_now()))
			break;
	}
	while (d->taken < d->posted && dr_channel_test(d->ch[RECEIVER], d->taken) == 1) {
		const uint64_t *b = d->buf[RECEIVER] + d->taken % DUO_WINDOW * WORDS;

		assert_int_equal(b[0], d->taken);
		assert_int_equal(b[WORDS - 1], ~d->taken);
		d->taken++;
	}
}

static void transmit(struct duo *d)
{
	struct dr_span s = { .mem = &d->mem[SENDER], .len = DUO_LEN };
	uint64_t seq;

	while (d->acked < d->sent && dr_channel_test(d->ch[SENDER], d->acked) == 1)
		d->acked++;
	for (; d->sent < d->acked + DUO_WINDOW; d->sent++) {
		uint64_t *b = d->buf[SENDER] + d->sent % DUO_WINDOW * WORDS;

		b[0] = d->sent;
		b[WORDS - 1] = ~d->sent;
		s.off = d->sent % DUO_WINDOW * DUO_LEN;
		if (dr_channel_send(d->ch[SENDER], &s, 1, &seq, duo_now()))
			break;
	}
}

void duo_turn_one(struct duo *d, unsigned end)
{
	advance(d->fake);
	dr_manager_tick(d->m[end], duo_now());
	if (!d->o.paused && end == SENDER)
		transmit(d);
	else if (!d->o.paused)
		receive(d);
	dr_channel_flush(d->ch[end], duo_now());
}

void duo_turn(struct duo *d, const char *what)
{
	if (duo_now() - d->began_ns > LIMIT_NS)
		fail_msg("waited in vain for %s (%s %s)", what, d->why[SENDER], d->why[RECEIVER]);
	for (unsigned end = 0; end < 2; end++) {
		duo_turn_one(d, end);
		if (d->err[end] && !d->o.ends)
			fail_msg("the channel ended while it waited for %s: %s", what, d->why[end]);
	}
}

bool duo_on_path(struct duo *d, unsigned path)
{
	struct dr_channel_stats s[2];

	for (unsigned end = 0; end < 2; end++)
		dr_channel_stats(d->ch[end], &s[end]);
	return s[0].active == path && s[1].active == path && s[0].path_up[path] &&
	       s[1].path_up[path];
}

bool duo_whole(struct duo *d)
{
	for (unsigned i = 0; i < d->o.rails; i++)
		if (!dr_channel_path_up(d->ch[SENDER], i) ||
			!dr_channel_path_up(d->ch[RECEIVER], i))
			return false;
	return true;
}

void duo_shut(struct duo *d)
{
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(
			dr_channel_mem_dereg(d->ch[end], &d->mem[end], duo_now(), NULL), 0);
	for (unsigned end = 0; end < 2; end++)
		dr_manager_close(d->m[end], duo_now());
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(dr_manager_destroy(d->m[end]), 0);
	for (unsigned end = 0; end < 2; end++)
		dr_peer_destroy(d->peer[end]);
	for (unsigned end = 0; end < 2; end++) {
		if (end == RECEIVER && d->fd >= 0)
			assert_int_equal(munmap(d->buf[end], BYTES), 0);
		else
			dr_pages_free(d->buf[end], BYTES);
	}
	if (d->fd >= 0)
		assert_int_equal(close(d->fd), 0);
}

void duo_clean(const struct dr_fake_ctl *fake)
{
	const char *what = NULL;

	assert_int_equal(fake->alive_total(), 0);
	if (fake->violations(&what))
		fail_msg("misuse: %s", what);
	fake->reset();
}

const char duo_two_rails[] = "a0:lo:127.0.0.1,b0:lo:127.0.0.2,a1:lo:127.0.0.3,b1:lo:127.0.0.4";

void duo_up(struct duo *d)
{
	const struct duo_opts o = { .rails = 2, .peer = true };

	duo_open(d, duo_nics(duo_two_rails), &o);
	duo_until(d, duo_on_path(d, 0) && duo_whole(d) && d->taken > 50);
}

void duo_end(struct duo *d)
{
	duo_shut(d);
	duo_clean(d->fake);
}
