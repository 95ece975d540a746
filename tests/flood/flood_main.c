/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * flood_main garbage|silent|half COUNT SECONDS SOURCE ADDRESS PORT...
 *
 * Opens connections from SOURCE to the ports in turn, COUNT at most, within SECONDS. garbage: each sends bytes that are
 * no hello, silent: nothing, half: the first bytes of a hello. Each is held open until HELD are, so that closing is the
 * server's part. Prints "flooding" after FIRST_ROUND connections, at the end "opened N, closed by the server M", then holds what
 * is open until its standard input ends. IPv4 only. Status: 0, 1 when no connection could be opened, 2 usage.
 */
enum { HELD = 700, FIRST_ROUND = 200, CONNECT_MS = 200, PORTS_MAX = 256 };

struct flood {
	const char *mode;
	struct sockaddr_in from, to;
	int fd[HELD];
	unsigned opened, closed;
};

/* -1: refused, or no answer in time. */
static int open_one(const struct flood *f)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1, err = 0;
	socklen_t len = sizeof(err);
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&f->from, sizeof(f->from)) == 0 &&
		(connect(fd, (const struct sockaddr *)&f->to, sizeof(f->to)) == 0 ||
			errno == EINPROGRESS) &&
		poll(&p, 1, CONNECT_MS) == 1 &&
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0)
		return fd;
	close(fd);
	return -1;
}

static void speak(const struct flood *f, int fd)
{
	static const char garbage[300] = "GET / HTTP/1.0\r\n\r\n";

	if (strcmp(f->mode, "garbage") == 0)
		(void)send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
	else if (strcmp(f->mode, "half") == 0)
		(void)send(fd, "DUALRAIL", 8, MSG_NOSIGNAL);
}

static void drop(struct flood *f, unsigned i)
{
	char byte[512];
	ssize_t n;

	if (f->fd[i] < 0)
		return;
	while ((n = recv(f->fd[i], byte, sizeof(byte), 0)) > 0)
		;
	f->closed += n == 0 || errno != EAGAIN;
	close(f->fd[i]);
	f->fd[i] = -1;
}

static void attack(struct flood *f, uint64_t count, uint64_t seconds, const uint64_t *ports, int n)
{
	int64_t end = dr_now_ns() + (int64_t)seconds * DR_NS_PER_S;

	for (uint64_t i = 0; i < count && dr_now_ns() < end; i++) {
		unsigned at = (unsigned)(i % HELD);

		drop(f, at);
		f->to.sin_port = htons((uint16_t)ports[i % (unsigned)n]);
		f->fd[at] = open_one(f);
		if (f->fd[at] >= 0) {
			f->opened++;
			speak(f, f->fd[at]);
		}
		if (i + 1 == FIRST_ROUND || i + 1 == count) {
			puts("flooding");
			fflush(stdout);
		}
	}
}

int main(int argc, char *argv[])
{
	static struct flood f;
	uint64_t count, seconds, ports[PORTS_MAX];
	int n = argc - 6;
	char byte;

	if (n < 1 || n > PORTS_MAX || dr_parse_u64(argv[2], 1, 1000000, &count, NULL) ||
		dr_parse_u64(argv[3], 1, 60, &seconds, NULL))
		return 2;
	for (int i = 0; i < n; i++)
		if (dr_parse_u64(argv[6 + i], 1, 65535, &ports[i], NULL))
			return 2;
	f.mode = argv[1];
	f.from.sin_family = f.to.sin_family = AF_INET;
	if (inet_pton(AF_INET, argv[4], &f.from.sin_addr) != 1 ||
		inet_pton(AF_INET, argv[5], &f.to.sin_addr) != 1)
		return 2;
	for (unsigned i = 0; i < HELD; i++)
		f.fd[i] = -1;
	attack(&f, count, seconds, ports, n);
	printf("opened %u, closed by the server %u\n", f.opened, f.closed);
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return f.opened == 0;
}
