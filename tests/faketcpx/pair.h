/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKETCPX_PAIR_H
#define DR_TESTS_FAKETCPX_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tests/faketcpx/faketcpx.h"
#include "tests/minplug/net/abi.h"

/*
 * Both ends of a comm of libnccl-net-faketcpx.so, or of another plugin, in one process, over loopback. The plugin can be initialised once in a
 * process and ends it on misuse, so all of this is called in children.
 */
enum { PATIENCE_S = 60 };

#define MUST(e)                                                                                    \
	do {                                                                                       \
		if (!(e)) {                                                                        \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e);              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* The plugin, a file beside the test; a test may set another one before its first child. */
struct pair_plugin {
	const char *file;
	unsigned versions; /* bit v: it has a table of version v */
	bool sizes;	   /* test writes them */
};
extern struct pair_plugin pair_plugin;
extern const struct pair_plugin pair_fakegdr;

struct pair {
	const struct min_net_v7 *net;
	uint8_t handle[MIN_HANDLE_BYTES];
	void *lcomm, *scomm, *rcomm;
	struct min_device_handle device;
	const struct tcpx_device_handle *unpack;
	uint8_t *out, *in; /* ROOM for each of the requests */
	void *out_mh, *in_mh;
	int ctrl_fd, data_fd; /* the sender's */
	int size;	      /* what test wrote last */
};

/* The plugin's table of a version; NULL: it has none. */
const void *pair_table(int version);
/* That of version 7; the versions are checked. */
const struct min_net_v7 *pair_load(void);
/* Memory that starts at a page; free() frees it. */
uint8_t *pair_pages(size_t len);
/* A plugin's logger. */
void pair_log(enum min_level level, unsigned long flags, const char *file, int line,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Initialises and listens. */
void pair_listen(struct pair *p);
/* with_device: accept gets a place for the device handle. */
void pair_connect(struct pair *p, bool with_device);
/* Both, and buffers of so many bytes, registered as CUDA memory: 0x5a to send, 0xee to receive. */
void pair_init(struct pair *p, size_t bytes);
/* The second part of it. */
void pair_register(struct pair *p, size_t bytes);
void pair_fini(struct pair *p);

/* The request of size bytes at an offset of the buffer. */
void *pair_send(struct pair *p, size_t at, int size);
void *pair_receive(struct pair *p, size_t at, int size);
bool pair_done(struct pair *p, void *request);
/* Until both requests are done; NULL: there is none. */
void pair_wait(struct pair *p, void *sent, void *received);
/* Ends the child when it takes too long. */
void pair_in_time(int64_t start);

/* Of a test: sets the environment; data goes in pieces of 512 KiB through one connection. */
int pair_setup(void **state);
/* Runs it in a child. Returns waitpid's status, and what was printed on standard error. */
int pair_child(void (*run)(void), char *said, size_t len);
/* The same; it has to end with this status, and to have said this. */
void pair_ends(void (*run)(void), int expected, const char *says);
/* The same; it has to abort, with these words behind the plugin's name. */
void pair_aborts(void (*run)(void), const char *plugin, const char *says);

#endif
