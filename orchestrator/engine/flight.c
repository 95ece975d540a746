/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/flight.h"

/* Chunks are whole multiples of this, as long as the message has so much left. */
enum { STEP = 1024 };
static const int64_t PERIOD_NS = 200 * 1000 * 1000;

void dr_flight_begin(
	struct dr_flight *f, bool on, uint32_t chunk_bytes, unsigned window, int64_t now_ns)
{
	*f = (struct dr_flight){ .on = on,
		.chunk_bytes = chunk_bytes,
		.limit = DR_FLIGHT_LEAST,
		.most = (double)chunk_bytes * window,
		.ceiling = 2 * DR_FLIGHT_LEAST,
		.grown_ns = now_ns,
		.period_ns = now_ns,
		.delay_ns = INT64_MAX };
}

void dr_flight_moved(struct dr_flight *f, int64_t now_ns)
{
	f->delay_ns = INT64_MAX;
	f->period_ns = now_ns;
}

uint32_t dr_flight_next(const struct dr_flight *f, uint64_t left)
{
	uint64_t len = DR_MIN((uint64_t)f->chunk_bytes, left);

	if (!f->on || f->limit >= f->most)
		return (uint32_t)len;
	len = DR_MIN(len, DR_MAX((uint64_t)f->limit / 2 / STEP * STEP, (uint64_t)STEP));
	/* One chunk is always allowed. */
	if (f->posted != f->done && (double)(f->posted - f->done + len) > f->limit)
		return 0;
	return (uint32_t)len;
}

struct dr_flight_mark dr_flight_posted(struct dr_flight *f, uint32_t len, int64_t now_ns)
{
	f->posted += len;
	return (struct dr_flight_mark){ now_ns, f->done };
}

void dr_flight_done(struct dr_flight *f, uint32_t len, struct dr_flight_mark m, int64_t now_ns)
{
	int64_t ns = DR_MAX(now_ns - m.ns, (int64_t)1);

	f->done += len;
	if (!f->on)
		return;
	f->delay_ns = DR_MIN(f->delay_ns, ns);
	if (now_ns - f->period_ns > DR_MAX(PERIOD_NS, 2 * f->delay_ns)) {
		f->rate[1] = f->rate[0];
		f->rate[0] = 0;
		f->period_ns = now_ns;
	}
	f->rate[0] = DR_MAX(f->rate[0], (double)(f->done - m.done) / (double)ns);
	double budget = DR_MAX(f->rate[0], f->rate[1]) *
			(double)DR_MAX((int64_t)DR_FLIGHT_QUEUE_NS, 2 * f->delay_ns);
	if (now_ns - f->grown_ns >= DR_FLIGHT_DOUBLE_NS) {
		f->grown_ns = now_ns;
		f->ceiling = 2 * f->limit;
	}
	f->limit = DR_MIN(DR_MIN(f->limit + len, f->ceiling), DR_MIN(f->most, budget));
	f->limit = DR_MAX(f->limit, (double)DR_FLIGHT_LEAST);
}
