/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/report/report.h"

/*
 * libmicrohttpd's thread answers; the main thread replaces the text under the lock. The listening
 * socket is made here, so that a port in use is an error with a name.
 */
struct dr_metrics {
	struct MHD_Daemon *daemon;
	uint16_t port;
	pthread_mutex_t lock;
	char *text;
	size_t len;
};

#define CONNECTIONS_MAX 16u
#define IDLE_SECONDS 10u

static enum MHD_Result reply(
	struct MHD_Connection *c, unsigned status, const char *type, const char *text, size_t len)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(
		len, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_len,
	void **state)
{
	static const char home[] = "dualrail: the metrics are at /metrics\n";
	static const char no_method[] = "only GET and HEAD\n",
			  no_page[] = "there is only /metrics\n";
	static const char plain[] = "text/plain; charset=utf-8";
	struct dr_metrics *m = arg;
	enum MHD_Result rc;

	(void)version;
	(void)upload;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return reply(
			c, MHD_HTTP_METHOD_NOT_ALLOWED, plain, no_method, sizeof(no_method) - 1);
	/* First call of a request: only its headers are here; answered now, the connection would not be
	 * kept. Later ones bring a body, which nobody wants, then none. */
	if (!*state || *upload_len) {
		*state = m;
		*upload_len = 0;
		return MHD_YES;
	}
	if (!strcmp(url, "/"))
		return reply(c, MHD_HTTP_OK, plain, home, sizeof(home) - 1);
	if (strcmp(url, "/metrics"))
		return reply(c, MHD_HTTP_NOT_FOUND, plain, no_page, sizeof(no_page) - 1);
	pthread_mutex_lock(&m->lock);
	rc = reply(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
		m->text ? m->text : "", m->len);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

/* Splits "ADDR:PORT"; addr "" means all addresses. */
static int split(const char *s, char *addr, size_t addr_size, char *port, struct dr_err *e)
{
	const char *colon = strrchr(s, ':'), *end = colon;
	uint64_t number;
	size_t n;

	if (!colon || dr_parse_u64(colon + 1, 0, 65535, &number, NULL))
		return dr_err_set(
			e, -EINVAL, "--metrics-listen=%.60s: want ADDR:PORT or [V6ADDR]:PORT", s);
	if (*s == '[' && colon > s && colon[-1] == ']') {
		s++;
		end--;
	} else if (memchr(s, ':', (size_t)(colon - s))) {
		return dr_err_set(e, -EINVAL,
			"--metrics-listen=%.60s: write an IPv6 address in brackets, [::1]:9400", s);
	}
	n = (size_t)(end - s);
	if (n >= addr_size)
		return dr_err_set(e, -EINVAL, "--metrics-listen=%.60s: the address is too long", s);
	memcpy(addr, s, n);
	addr[n] = '\0';
	snprintf(port, 8, "%" PRIu64, number);
	return 0;
}

static int listen_on(const char *spec, const struct addrinfo *ai, struct dr_err *e)
{
	int one = 1, zero = 0, rc, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return dr_err_set(
			e, -errno, "--metrics-listen=%s: socket: %s", spec, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, (int)CONNECTIONS_MAX)) {
		rc = dr_err_set(e, -errno, "--metrics-listen=%s: %s; %s", spec, strerror(errno),
			errno == EADDRINUSE ? "choose another port"
					    : "choose an address of this host");
		close(fd);
		return rc;
	}
	return fd;
}

static int open_socket(const char *spec, uint16_t *port, struct dr_err *e)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV },
			*list, *ai;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char addr[64], service[8];
	int fd = -EADDRNOTAVAIL, rc = split(spec, addr, sizeof(addr), service, e);

	if (rc)
		return rc;
	if (!strcmp(addr, "localhost"))
		snprintf(addr, sizeof(addr), "127.0.0.1");
	rc = getaddrinfo(*addr ? addr : NULL, service, &hints, &list);
	if (rc)
		return dr_err_set(e, -EINVAL, "--metrics-listen=%s: %s; give a numeric address",
			spec, gai_strerror(rc));
	for (ai = list; ai && fd < 0; ai = ai->ai_next)
		fd = listen_on(spec, ai, e);
	freeaddrinfo(list);
	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
		*port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
						       : ((struct sockaddr_in *)&ss)->sin_port);
	return fd;
}

int dr_metrics_start(const char *listen, struct dr_metrics **out, struct dr_err *e)
{
	struct dr_metrics *m = dr_calloc(1, sizeof(*m));
	sigset_t all, old;
	int fd;

	if (!m)
		return dr_err_set(e, -ENOMEM, "--metrics-listen=%s: out of memory", listen);
	fd = open_socket(listen, &m->port, e);
	if (fd < 0) {
		dr_free(m);
		return fd;
	}
	pthread_mutex_init(&m->lock, NULL);
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	m->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC, 0, NULL, NULL,
		answer, m, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!m->daemon) {
		close(fd);
		pthread_mutex_destroy(&m->lock);
		dr_free(m);
		return dr_err_set(
			e, -ENOMEM, "--metrics-listen=%s: the HTTP server does not start", listen);
	}
	*out = m;
	return 0;
}

uint16_t dr_metrics_port(const struct dr_metrics *m)
{
	return m->port;
}

void dr_metrics_publish(struct dr_metrics *m, const char *text, size_t len)
{
	char *copy = dr_calloc(1, len + 1), *old;

	if (!copy)
		return;
	memcpy(copy, text, len);
	pthread_mutex_lock(&m->lock);
	old = m->text;
	m->text = copy;
	m->len = len;
	pthread_mutex_unlock(&m->lock);
	dr_free(old);
}

void dr_metrics_stop(struct dr_metrics *m)
{
	if (!m)
		return;
	MHD_stop_daemon(m->daemon); /* closes the socket, joins the thread */
	pthread_mutex_destroy(&m->lock);
	dr_free(m->text);
	dr_free(m);
}
