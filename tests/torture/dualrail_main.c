/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program with calls that can be made to fail: linked with orchestrator/main.c's main, so that the
 * linker's --wrap (wrap.ld) leads its calls through here.
 *
 *   DR_TORTURE=SIDE:CLASS:K   at the end "server" or "client" (argv[1]) the K-th call of a class fails:
 *     memory   dr_calloc and its kin
 *     json     jansson's allocations
 *     system   sockets, files, netlink, threads, processes
 *   DR_TORTURE_LOG=FILE       gets "fired NAME" and, at the end, "count CLASS N" of that class
 *
 * Calls are counted in all threads; a forked child counts on from its parent.
 */
#include "base/defs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libmnl/libmnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum class { MEMORY, JSON, SYSTEM, CLASSES };
static const char *const class_names[CLASSES] = { "memory", "json", "system" };

static _Atomic long calls[CLASSES], wanted; /* wanted: the number of the call that fails; 0: none */
static enum class wanted_class;
static pid_t owner;

/* Straight to the kernel: nothing here may be counted. */
static void say(const char *what, const char *name, long n)
{
	const char *path = getenv("DR_TORTURE_LOG");
	char line[128];
	int len = n < 0 ? snprintf(line, sizeof(line), "%s %s\n", what, name)
			: snprintf(line, sizeof(line), "%s %s %ld\n", what, name, n);
	long fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0600)
		       : -1;

	if (fd < 0)
		return;
	syscall(SYS_write, fd, line, (size_t)len);
	syscall(SYS_close, fd);
}

static bool hit(enum class c, const char *name)
{
	if (c != wanted_class || atomic_fetch_add(&calls[c], 1) + 1 != atomic_load(&wanted))
		return false;
	say("fired", name, -1);
	return true;
}

static void *json_alloc(size_t size)
{
	return hit(JSON, "json") ? NULL : malloc(size);
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
	const char *spec = getenv("DR_TORTURE");
	size_t len;

	if (!spec || argc < 2)
		return;
	len = strlen(argv[1]);
	if (strncmp(spec, argv[1], len) != 0 || spec[len] != ':')
		return;
	spec += len + 1;
	for (int c = 0; c < CLASSES; c++) {
		len = strlen(class_names[c]);
		if (strncmp(spec, class_names[c], len) == 0 && spec[len] == ':') {
			wanted_class = (enum class)c;
			atomic_store(&wanted, strtol(spec + len + 1, NULL, 10));
			owner = getpid();
		}
	}
	json_set_alloc_funcs(json_alloc, free);
}

__attribute__((destructor)) static void end(void)
{
	if (owner == getpid())
		say("count", class_names[wanted_class], atomic_load(&calls[wanted_class]));
}

/* The call itself, or its failure. */
#define WRAP(c, type, name, params, args, failed, error)                                           \
	type __real_##name params;                                                                 \
	type __wrap_##name params;                                                                 \
	type __wrap_##name params                                                                  \
	{                                                                                          \
		if (!hit(c, #name))                                                                \
			return __real_##name args;                                                 \
		errno = (error);                                                                   \
		return failed;                                                                     \
	}

WRAP(MEMORY, void *, dr_calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
WRAP(MEMORY, void *, dr_realloc, (void *p, size_t size), (p, size), NULL, ENOMEM)
WRAP(MEMORY, char *, dr_strdup, (const char *s), (s), NULL, ENOMEM)
WRAP(MEMORY, void *, dr_pages_alloc, (size_t size), (size), NULL, ENOMEM)

typedef struct sockaddr sa_t;
WRAP(SYSTEM, int, socket, (int d, int t, int p), (d, t, p), -1, EMFILE)
WRAP(SYSTEM, int, socketpair, (int d, int t, int p, int v[2]), (d, t, p, v), -1, EMFILE)
WRAP(SYSTEM, int, bind, (int fd, const sa_t *a, socklen_t n), (fd, a, n), -1, EADDRINUSE)
WRAP(SYSTEM, int, listen, (int fd, int n), (fd, n), -1, EADDRINUSE)
WRAP(SYSTEM, int, accept4, (int fd, sa_t *a, socklen_t *n, int f), (fd, a, n, f), -1, EMFILE)
WRAP(SYSTEM, int, connect, (int fd, const sa_t *a, socklen_t n), (fd, a, n), -1, ENETUNREACH)
WRAP(SYSTEM, int, getsockname, (int fd, sa_t *a, socklen_t *n), (fd, a, n), -1, ENOBUFS)
WRAP(SYSTEM, int, getsockopt, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n), -1,
	ENOBUFS)
WRAP(SYSTEM, int, setsockopt, (int fd, int l, int o, const void *v, socklen_t n), (fd, l, o, v, n),
	-1, ENOBUFS)
WRAP(SYSTEM, ssize_t, send, (int fd, const void *p, size_t n, int f), (fd, p, n, f), -1, ECONNRESET)
WRAP(SYSTEM, ssize_t, recv, (int fd, void *p, size_t n, int f), (fd, p, n, f), -1, ECONNRESET)
WRAP(SYSTEM, ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), -1, ECONNRESET)
WRAP(SYSTEM, ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), -1, ECONNRESET)
WRAP(SYSTEM, ssize_t, recvfrom, (int fd, void *p, size_t n, int f, sa_t *a, socklen_t *l),
	(fd, p, n, f, a, l), -1, ENOBUFS)
WRAP(SYSTEM, int, epoll_create1, (int f), (f), -1, EMFILE)
WRAP(SYSTEM, int, epoll_ctl, (int fd, int op, int t, struct epoll_event *e), (fd, op, t, e), -1,
	ENOMEM)
WRAP(SYSTEM, int, eventfd, (unsigned v, int f), (v, f), -1, EMFILE)
WRAP(SYSTEM, int, signalfd, (int fd, const sigset_t *s, int f), (fd, s, f), -1, EMFILE)
WRAP(SYSTEM, int, pipe2, (int v[2], int f), (v, f), -1, EMFILE)
WRAP(SYSTEM, int, fstat, (int fd, struct stat *s), (fd, s), -1, EIO)
WRAP(SYSTEM, int, fsync, (int fd), (fd), -1, EIO)
WRAP(SYSTEM, int, renameat, (int d, const char *a, int t, const char *b), (d, a, t, b), -1, EACCES)
WRAP(SYSTEM, FILE *, fopen, (const char *p, const char *m), (p, m), NULL, EMFILE)
WRAP(SYSTEM, FILE *, fdopen, (int fd, const char *m), (fd, m), NULL, ENOMEM)
WRAP(SYSTEM, FILE *, open_memstream, (char **p, size_t *n), (p, n), NULL, ENOMEM)
WRAP(SYSTEM, pid_t, fork, (void), (), -1, EAGAIN)
WRAP(SYSTEM, int, pthread_create,
	(pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *arg), (t, a, fn, arg),
	EAGAIN, EAGAIN)
WRAP(SYSTEM, struct mnl_socket *, mnl_socket_open2, (int bus, int f), (bus, f), NULL, EMFILE)
WRAP(SYSTEM, int, mnl_socket_bind, (struct mnl_socket * s, unsigned g, pid_t p), (s, g, p), -1,
	EADDRINUSE)
WRAP(SYSTEM, ssize_t, mnl_socket_sendto, (const struct mnl_socket *s, const void *p, size_t n),
	(s, p, n), -1, ENOBUFS)
WRAP(SYSTEM, ssize_t, mnl_socket_recvfrom, (const struct mnl_socket *s, void *p, size_t n),
	(s, p, n), -1, ENOBUFS)

/* The mode of open and openat is only there with O_CREAT; to read it always does no harm here. */
WRAP(SYSTEM, int, open, (const char *p, int f, mode_t m), (p, f, m), -1, EMFILE)
WRAP(SYSTEM, int, openat, (int d, const char *p, int f, mode_t m), (d, p, f, m), -1, EMFILE)

/* Event descriptors and the like are the kernel's memory: reading and writing them does not fail. */
static bool is_anonymous(int fd)
{
	char path[64], target[16] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof(target) - 1) > 0 &&
	       strncmp(target, "anon_inode:", 11) == 0;
}

ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n)
{
	if (is_anonymous(fd) || !hit(SYSTEM, "read"))
		return __real_read(fd, p, n);
	errno = EIO;
	return -1;
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	if (is_anonymous(fd) || !hit(SYSTEM, "write"))
		return __real_write(fd, p, n);
	errno = ENOSPC;
	return -1;
}
