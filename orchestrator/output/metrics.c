/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/source.h"
#include "base/units.h"
#include "bootstrap/net.h"
#include "orchestrator/output/parts.h"

/*
 * libmicrohttpd's thread answers; the main thread replaces the page under the lock. The listening
 * socket is made here, so that a port in use is an error with a name.
 */
enum { CONNECTIONS_MAX = 16, IDLE_SECONDS = 10 };
struct visitor {
	struct MHD_Connection *c;
	struct sockaddr_storage from;
};
struct dr_metrics {
	int fd;			   /* the listener, until the daemon has it; -1 */
	struct MHD_Daemon *daemon; /* NULL: not serving yet */
	uint16_t port;
	pthread_mutex_t lock;
	const struct dr_networks *allow;      /* NULL: all */
	struct visitor open[CONNECTIONS_MAX]; /* oldest first; of libmicrohttpd's thread */
	unsigned n_open;
	struct MHD_Response *page; /* counted: a connection that still sends it keeps it */
};

static struct sockaddr_storage address(const struct sockaddr *sa)
{
	struct sockaddr_storage out = { 0 };

	if (sa)
		memcpy(&out, sa,
			sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						  : sizeof(struct sockaddr_in));
	return out;
}

static enum MHD_Result allowed(void *arg, const struct sockaddr *from, socklen_t len)
{
	const struct dr_metrics *m = arg;
	struct sockaddr_storage sa = address(from);

	(void)len;
	return !m->allow || dr_networks_have(m->allow, &sa) ? MHD_YES : MHD_NO;
}

static unsigned count_of(const struct dr_metrics *m, const struct visitor *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_open; i++)
		n += dr_same_host(&m->open[i].from, &v->from);
	return n;
}

/* One place stays free: the oldest connection of the address with the most ends. */
static void make_room(const struct dr_metrics *m)
{
	const struct visitor *v = &m->open[0];

	for (unsigned i = 1; i < m->n_open; i++)
		if (count_of(m, &m->open[i]) > count_of(m, v))
			v = &m->open[i];
	shutdown(MHD_get_connection_info(v->c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
		SHUT_RDWR);
}

static void visited(void *arg, struct MHD_Connection *c, void **context,
	enum MHD_ConnectionNotificationCode what) /* lint-ok: libmicrohttpd's signature */
{
	struct dr_metrics *m = arg;
	unsigned i = 0;

	(void)context;
	if (what == MHD_CONNECTION_NOTIFY_STARTED && m->n_open < CONNECTIONS_MAX) {
		m->open[m->n_open++] = (struct visitor){ c,
			address(MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS)
					->client_addr) };
		if (m->n_open == CONNECTIONS_MAX)
			make_room(m);
		return;
	}
	while (i < m->n_open && m->open[i].c != c)
		i++;
	if (i < m->n_open)
		memmove(&m->open[i], &m->open[i + 1], (--m->n_open - i) * sizeof(m->open[0]));
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *text)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(
		strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_len,
	void **state) /* lint-ok: libmicrohttpd's signature */
{
	struct dr_metrics *m = arg;
	enum MHD_Result rc;

	(void)version;
	(void)upload;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return reply(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
	/* First call of a request: only its headers are here; answered now, the connection would not be
	 * kept. Later ones bring a body, which nobody wants, then none. */
	if (!*state || *upload_len) {
		*state = m;
		*upload_len = 0;
		return MHD_YES;
	}
	if (!strcmp(url, "/"))
		return reply(c, MHD_HTTP_OK, "dualrail: the metrics are at /metrics\n");
	if (strcmp(url, "/metrics"))
		return reply(c, MHD_HTTP_NOT_FOUND, "there is only /metrics\n");
	pthread_mutex_lock(&m->lock);
	rc = m->page ? MHD_queue_response(c, MHD_HTTP_OK, m->page) : MHD_NO;
	pthread_mutex_unlock(&m->lock);
	return rc;
}

static int parse_address(const char *s, struct dr_addr *out, struct dr_err *e)
{
	const char *colon = strrchr(s, ':');
	char host[64];
	uint64_t port;

	if (!colon || dr_parse_u64(colon + 1, 0, 65535, &port, NULL))
		return dr_err_set(e, -EINVAL,
			"--metrics-listen=%.60s: expected ADDR:PORT or [V6ADDR]:PORT", s);
	int brackets = *s == '[' && colon > s && colon[-1] == ']';
	if (!brackets && memchr(s, ':', (size_t)(colon - s)))
		return dr_err_set(e, -EINVAL,
			"--metrics-listen=%.60s: write an IPv6 address in brackets, [::1]:9400", s);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - s) - 2 * brackets, s + brackets);
	memset(out, 0, sizeof(*out));
	if (*host && strcmp(host, "::") &&
		dr_addr_parse(strcmp(host, "localhost") ? host : "127.0.0.1", out))
		return dr_err_set(e, -EINVAL,
			"--metrics-listen=%.60s: \"%s\" is not a numeric address", s, host);
	dr_sa_set_port(&out->ss, (uint16_t)port);
	return 0;
}

static int listen_on(const char *spec, uint16_t *port, struct dr_err *e)
{
	struct dr_addr a;
	int fd = -1, rc = parse_address(spec, &a, e);

	if (rc)
		return rc;
	rc = dr_net_listen(&a, &fd, NULL);
	*port = dr_sa_port(&a.ss);
	if (!rc)
		return fd;
	int err = rc == -ENODEV ? EADDRNOTAVAIL : -rc;
	return dr_err_set(e, -err, "--metrics-listen=%s: %s; %s", spec, strerror(err),
		err == EADDRINUSE ? "choose another port" : "choose an address of this host");
}

int dr_metrics_start(const char *listen, const struct dr_networks *allow, struct dr_metrics **out,
	struct dr_err *e)
{
	struct dr_metrics *m = dr_calloc(1, sizeof(*m));

	if (!m)
		return dr_err_set(e, -ENOMEM, "--metrics-listen=%s: out of memory", listen);
	m->allow = allow;
	m->fd = listen_on(listen, &m->port, e);
	if (m->fd < 0) {
		int rc = m->fd;

		dr_free(m);
		return rc;
	}
	pthread_mutex_init(&m->lock, NULL);
	dr_metrics_publish(m, "", 0);
	*out = m;
	return 0;
}

int dr_metrics_serve(struct dr_metrics *m, struct dr_err *e)
{
	sigset_t all, old;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	m->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC, 0, allowed, m,
		answer, m, MHD_OPTION_LISTEN_SOCKET, m->fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
		MHD_OPTION_NOTIFY_CONNECTION, visited, m, MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!m->daemon)
		return dr_err_set(e, -ENOMEM, "--metrics-listen: the HTTP server did not start");
	m->fd = -1;
	return 0;
}

uint16_t dr_metrics_port(const struct dr_metrics *m)
{
	return m->port;
}

static void replace_page(struct dr_metrics *m, struct MHD_Response *page)
{
	struct MHD_Response *old;

	pthread_mutex_lock(&m->lock);
	old = m->page;
	m->page = page;
	pthread_mutex_unlock(&m->lock);
	if (old)
		MHD_destroy_response(old);
}

void dr_metrics_publish(struct dr_metrics *m, const char *text, size_t len)
{
	struct MHD_Response *page = MHD_create_response_from_buffer(
		len, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);

	if (!page)
		return;
	MHD_add_response_header(
		page, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
	replace_page(m, page);
}

void dr_metrics_stop(struct dr_metrics *m)
{
	if (!m)
		return;
	if (m->daemon)
		MHD_stop_daemon(m->daemon); /* closes the socket, joins the thread */
	if (m->fd >= 0)
		close(m->fd);
	replace_page(m, NULL);
	pthread_mutex_destroy(&m->lock);
	dr_free(m);
}
