/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections that do not come about, and strangers on the listening port. */

/* ---- the listening sockets of this process ---- */

enum { PORTS = 16 };
struct place {
	struct sockaddr_storage at;
	socklen_t len;
};

static unsigned listeners(struct place *out)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024 && n < PORTS; fd++) {
		struct place *p = &out[n];
		struct sockaddr_in *in = (void *)&p->at;
		struct sockaddr_in6 *in6 = (void *)&p->at;
		int listens = 0;

		p->len = sizeof(listens);
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &p->len) != 0 || !listens)
			continue;
		p->len = sizeof(p->at);
		if (getsockname(fd, (struct sockaddr *)&p->at, &p->len) != 0)
			continue;
		if (p->at.ss_family == AF_INET && in->sin_addr.s_addr == 0)
			in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		else if (p->at.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr))
			in6->sin6_addr = in6addr_loopback;
		n += p->at.ss_family == AF_INET || p->at.ss_family == AF_INET6;
	}
	return n;
}

/* ---- strangers ---- */

enum { STRANGERS = 200 };
struct strangers {
	int fd[STRANGERS];
	unsigned n;
};

/* One third says nothing, one third talks nonsense, one third begins as the peer might and stops. */
static void stranger(struct strangers *s, const struct place *p, struct dr_rng *rng)
{
	unsigned char junk[200];
	int fd = socket(p->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	(void)connect(fd, (const struct sockaddr *)&p->at, p->len);
	for (size_t i = 0; i < sizeof(junk); i++)
		junk[i] = (unsigned char)dr_rng_u64(rng);
	if (s->n % 3 == 1)
		(void)send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
	else if (s->n % 3 == 2)
		(void)send(fd, junk, 1 + s->n % 7, MSG_NOSIGNAL);
	s->fd[s->n++] = fd;
}

static void let_strangers_in(struct end *e, struct strangers *s)
{
	struct place at[PORTS];
	unsigned n = listeners(at);

	CHECK(e, n > 0, "no listening socket of this process found");
	s->n = 0;
	for (unsigned i = 0; i < STRANGERS; i++)
		stranger(s, &at[i % n], &e->r->own);
}

static void send_strangers_away(struct strangers *s)
{
	while (s->n > 0)
		close(s->fd[--s->n]);
}

/* Half-open connections from strangers, before and while the peer connects, do not disturb accept. */
static void strangers(struct rank *r)
{
	struct strangers s = { .n = 0 };
	struct handle h;
	struct end e;
	void *comm, *l;

	end_open(&e, r);
	if (r->id == 1) {
		l = end_listen(&e, 0, &h);
		let_strangers_in(&e, &s);
		for (int i = 0; i < 50; i++)
			CHECK(&e, !end_try_accept(&e, l), "accepted a stranger");
		rank_send(r, 0, &h, sizeof(h));
		comm = end_accept(&e, l);
		OK(&e, e.n.close_listen(l));
	} else {
		rank_recv(r, 1, &h, sizeof(h));
		comm = end_connect(&e, 0, &h);
	}
	end_ping(&e, comm, r->id == 0);
	send_strangers_away(&s);
	if (r->id == 1) /* at the ports of the data as well */
		let_strangers_in(&e, &s);
	end_ping(&e, comm, r->id == 0);
	end_close_comm(&e, comm, r->id == 0);
	send_strangers_away(&s);
	end_close(&e);
}

/* ---- connections that do not come about ---- */

/* Repeats connect until it fails, at most `bound`; a comm is no failure. */
static void connect_fails(struct end *e, struct handle *h, int64_t bound_ns, const char *what)
{
	int64_t end = dr_now_ns() + bound_ns;
	enum nccl_result rc = NCCL_SUCCESS;
	unsigned turns = 0;
	void *comm = NULL;

	RANK_AT(e->r, "connect that has to fail");
	while (rc == NCCL_SUCCESS && !comm && dr_now_ns() < end) {
		rc = dr_nccl_connect(&e->n, 0, h, &comm);
		rank_relax(&turns);
	}
	CHECK(e, rc != NCCL_SUCCESS, "%s: %s", what, comm ? "it has a comm" : "no error in time");
	CHECK(e, rc != NCCL_IN_PROGRESS, "%s: in progress is a result of NCCL alone", what);
	CHECK(e, rank_logged(e->r, NCCL_LOG_WARN, "") > 0, "%s: no warning", what);
}

/* A handle whose process is gone, one that is closed, and one that nobody wrote. */
static void connect_to_nobody(struct rank *r)
{
	int64_t bound = 8 * DR_NS_PER_S; /* with a limit of 1 s */
	struct handle h, closed, junk;
	struct end e;
	char gone;
	void *l;

	setenv("HA_NCCL_CONNECT_TIMEOUT_MS", "1000", 1);
	end_open(&e, r);
	if (r->id == 1) {
		l = end_listen(&e, 0, &closed);
		OK(&e, e.n.close_listen(l));
		rank_send(r, 0, &closed, sizeof(closed));
		(void)end_listen(&e, 0, &h);
		rank_barrier(r); /* the closed one was tried */
		rank_send(r, 0, &h, sizeof(h));
		_exit(0);
	}
	rank_recv(r, 1, &closed, sizeof(closed));
	for (size_t i = 0; i < sizeof(junk); i++)
		junk.bytes[i] = (unsigned char)dr_rng_u64(&r->own);
	connect_fails(&e, &junk, bound, "a handle of random bytes");
	memset(&junk, 0, sizeof(junk));
	connect_fails(&e, &junk, bound, "a handle of zeros");
	connect_fails(&e, &closed, bound, "a listen comm that is closed");
	rank_barrier(r);
	rank_recv(r, 1, &h, sizeof(h));
	RANK_AT(r, "until the peer has ended");
	CHECK(&e, recv(r->fd[1], &gone, 1, 0) == 0, "the peer goes on");
	connect_fails(&e, &h, bound, "a process that is gone");
	end_close(&e);
}

/* closeListen while a peer connects, at any moment: an error or a comm, no hang; the next one works. */
static void close_listen_early(struct rank *r)
{
	enum { TIMES = 4 };
	struct end e;

	setenv("HA_NCCL_CONNECT_TIMEOUT_MS", "500", 1);
	end_open(&e, r);
	for (int i = 0; i < TIMES; i++) {
		int64_t end = dr_now_ns() + 8 * DR_NS_PER_S;
		unsigned wait = (unsigned)dr_rng_below(&r->common, 400), turns = 0;
		enum nccl_result rc = NCCL_SUCCESS;
		struct handle h;
		void *comm = NULL;

		if (r->id == 1) {
			void *l = end_listen(&e, 0, &h);

			rank_send(r, 0, &h, sizeof(h));
			while (turns < wait)
				rank_relax(&turns);
			OK(&e, e.n.close_listen(l));
			rank_barrier(r);
			continue;
		}
		rank_recv(r, 1, &h, sizeof(h));
		RANK_AT(r, "connect to a listen comm that is closed meanwhile");
		while (rc == NCCL_SUCCESS && !comm && dr_now_ns() < end) {
			rc = dr_nccl_connect(&e.n, 0, &h, &comm);
			rank_relax(&turns);
		}
		CHECK(&e, rc != NCCL_SUCCESS || comm, "neither a comm nor an error");
		end_close_comm(&e, comm, true);
		rank_barrier(r);
	}
	end_close(&e);
}

static const struct contract_case cases[] = {
	{ .name = "strangers", .run = strangers, .ranks = 2 },
	{ .name = "connect_to_nobody", .run = connect_to_nobody, .ranks = 2 },
	{ .name = "close_listen_early", .run = close_listen_early, .ranks = 2 },
};
const struct contract_cases contract_peers = { cases, DR_ARRAY_LEN(cases) };
