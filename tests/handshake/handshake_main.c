/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Time of the handshake of the control conversation, for scripts/bench/secure.sh.
 *
 *   handshake_main ADDRESS PORT N [KEYFILE]   N connections to a server, one after the other
 *   handshake_main key KEYFILE N              the key is read N times
 *
 * Prints the median, the largest value, and how many, in us. A connection is timed from the dialling until a server's
 * answer to an offer without parameters: a refusal, which comes under the session's keys. So the time includes one round
 * trip and one message of each end more than the handshake. Status 1: something else happened.
 */
enum { COUNT_MAX = 4096 };

struct dial {
	bool ended;
	enum dr_boot_cause cause;
	char text[256];
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "handshake: %s\n", what);
	exit(1);
}

static void on_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned handles_out, unsigned handles_in)
{
	(void)arg;
	(void)reply;
	(void)gpus;
	(void)pairs;
	(void)handles_out;
	(void)handles_in;
	die("the server accepts an offer without parameters");
}

static void on_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err)
{
	struct dial *d = arg;

	(void)code;
	d->ended = true;
	d->cause = cause;
	snprintf(d->text, sizeof(d->text), "%s", err->text);
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dial *d = arg;

	d->ended = true;
	d->cause = cause;
	snprintf(d->text, sizeof(d->text), "%s", text);
}

static const struct dr_boot_ops ops = {
	.on_accept = on_accept, .on_failed = on_failed, .on_closed = on_closed
};

/* A server that still ends the connection before says BUSY: that answer comes under the session's keys, too. */
static int64_t connect_once(const struct dr_boot_opts *o, struct dr_poller *poller)
{
	struct dial d = { 0 };
	struct dr_boot_client *c;
	struct dr_err e;
	int64_t from_ns = dr_now_ns(), took_ns;

	if (dr_boot_client_create(&c, o, &ops, &d, poller, &e))
		die(e.text);
	dr_boot_client_tick(c, dr_now_ns());
	while (!d.ended) {
		int64_t left_ns = dr_boot_client_deadline(c) - dr_now_ns();

		dr_poller_wait(poller, DR_MAX(0, DR_MIN(left_ns, DR_NS_PER_S)));
		dr_boot_client_tick(c, dr_now_ns());
	}
	took_ns = dr_now_ns() - from_ns;
	dr_boot_client_destroy(c);
	if (d.cause != DR_BOOT_DECLINED && d.cause != DR_BOOT_BUSY)
		die(d.text);
	return took_ns;
}

static void connect_all(
	const char *host, const char *port, const struct dr_boot_key *key, int64_t *ns, unsigned n)
{
	const unsigned gpu = 0;
	json_t *params = json_object();
	struct dr_boot_opts o = { .gpus = &gpu,
		.n_gpus = 1,
		.host = host,
		.port = (uint16_t)strtoul(port, NULL, 10),
		.key = key,
		.version = "handshake",
		.params = params,
		.connect_timeout_ns = 10 * DR_NS_PER_S };
	struct dr_poller *poller;
	struct dr_err e;

	if (!params || dr_poller_create(&poller, &e))
		die("no memory");
	for (unsigned i = 0; i < n; i++)
		ns[i] = connect_once(&o, poller);
	dr_poller_destroy(poller);
	json_decref(params);
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
	static int64_t ns[COUNT_MAX];
	bool reads = argc == 4 && strcmp(argv[1], "key") == 0;
	struct dr_boot_key key;
	struct dr_err e;
	unsigned long n;

	if (argc != 4 && argc != 5)
		die("usage: handshake_main ADDRESS PORT N [KEYFILE] | key KEYFILE N");
	n = strtoul(argv[3], NULL, 10);
	if (n < 1 || n > COUNT_MAX)
		die("N is not 1 to 4096");
	dr_log_set_level(DR_LOG_ERROR);
	if (argc == 5 && dr_boot_key_read(argv[4], &key, &e))
		die(e.text);
	for (unsigned i = 0; reads && i < n; i++) {
		int64_t from_ns = dr_now_ns();

		if (dr_boot_key_read(argv[2], &key, &e))
			die(e.text);
		ns[i] = dr_now_ns() - from_ns;
	}
	if (!reads)
		connect_all(argv[1], argv[2], argc == 5 ? &key : NULL, ns, (unsigned)n);
	qsort(ns, n, sizeof(ns[0]), by_value);
	printf("%.1f %.1f %lu\n", (double)ns[n / 2] / DR_NS_PER_US,
		(double)ns[n - 1] / DR_NS_PER_US, n);
	return 0;
}
