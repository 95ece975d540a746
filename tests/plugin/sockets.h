/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_SOCKETS_H
#define DR_TESTS_PLUGIN_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A peer for measurements: messages as NCCL's Socket transport sends them. A comm has one control connection, which carries
 * the size of each message with up to 128 bytes of it, and n data connections. The rest of a message is divided evenly among
 * these, in pieces of at least 64 KiB; m threads drive the data connections, n / m each, and sleep when they have no work.
 * Without threads everything is on the control connection, from the caller's thread. Everything else happens in
 * sock_test.
 *
 * One thread calls a comm; at most SOCK_REQUESTS requests are outstanding.
 */
enum { SOCK_REQUESTS = 32, SOCK_CONNS_MAX = 16, SOCK_INLINE = 128, SOCK_PIECE_MIN = 64 << 10 };

struct sock_comm;
struct sock_request;

/* fds: of the control connection, then of n data connections. threads: 0, or a divisor of n. NULL: out of memory or
 * threads. The descriptors belong to the comm. */
struct sock_comm *sock_open(bool sends, const int *fds, unsigned n, unsigned threads);
void sock_close(struct sock_comm *c);
/* NULL: SOCK_REQUESTS are outstanding. */
struct sock_request *sock_post(struct sock_comm *c, void *data, size_t len);
/* 1: done, and gone; 0: not yet; -errno. */
int sock_test(struct sock_request *r, size_t *size);

#endif
