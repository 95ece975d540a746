/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_ENDS_H
#define DR_TESTS_PLUGINS_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tests/plugins/fake.h"
#include "transport/ncclnet.h"

/*
 * Both ends of a comm of libnccl-net-fake.so in one process, over loopback. The plugin has one personality in a process and
 * ends it on misuse, so all of this is called in children, and what fails there ends the child.
 */
#define MUST(e)                                                                                    \
	do {                                                                                       \
		if (!(e)) {                                                                        \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e);              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
/* For a loop: ends the child when it takes too long. */
#define IN_TIME for (int64_t start_ = dr_now_ns();; ends_in_time(start_))

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* How a child uses the plugin. */
struct way {
	enum { SOCKET = 1, PIECES = 2, DIRECT = 4, FAST = 8 } fake;
	unsigned version;
	unsigned requests;
};
#define ANY_FAKE (SOCKET | PIECES | DIRECT)
#define CUDA_FAKE (PIECES | DIRECT)
#define HOST_FAKE (SOCKET | FAST)

/* Each personality with its versions, the newest one first. */
extern const struct way ends_ways[];
extern const unsigned ends_n_ways;
/* Of the children to come. */
extern const struct way *ends_way;
extern unsigned ends_only; /* no other personalities */
#define EACH_WAY(mask)                                                                             \
	for (ends_way = ends_ways; ends_way < ends_ways + ends_n_ways; ends_way++)                 \
		if (ends_way->fake & (mask)&ends_only)
static inline bool ends_is_newest(void)
{
	return ends_way == ends_ways || ends_way[-1].fake != ends_way->fake;
}
/* The newest version alone. */
#define EACH_FAKE(mask) EACH_WAY(mask) if (ends_is_newest())

struct ends {
	struct dr_nccl net;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	void *lcomm, *scomm, *rcomm;
	struct nccl_net_device_handle device;
	const struct fn_unpack_handle *unpack;
	int type;	   /* of memory: CUDA, where the personality has it */
	uint8_t *out, *in; /* registered */
	size_t room;	   /* bytes of each */
	void *out_mh, *in_mh;
	int ctrl_fd, data_fd; /* the sender's; of socket both are one */
};

/* That version; 0: that of the way, and all versions are checked. */
struct dr_nccl ends_load(unsigned version);
static inline enum nccl_result ends_reg(
	const struct dr_nccl *n, void *comm, void *data, size_t size, int type, void **mh)
{
	struct dr_nccl_buffer b = { .data = data, .size = size };
	int rc = dr_nccl_reg(n, comm, &b, type);

	*mh = b.mhandle;
	return (enum nccl_result)rc;
}
/* Memory that starts at a page; free() frees it. */
uint8_t *ends_pages(size_t len);
/* Initialises, and listens on the only device. */
void ends_listen(struct ends *e);
/* Continues connect and accept until each has returned a comm or an error. with_device: accept gets a place for the device handle. */
enum nccl_result ends_dial(struct ends *e);
enum nccl_result ends_admit(struct ends *e, bool with_device);
/* Both; where a listener gives one comm it is closed. */
void ends_connect(struct ends *e);
/* All of that, and buffers of so many bytes: 0x5a to send, 0xee to receive. */
void ends_init(struct ends *e, size_t bytes);
void ends_register(struct ends *e, size_t bytes);
/* Closes the comms, what is not NULL. */
void ends_close(struct ends *e);
void ends_fini(struct ends *e);

/* The request of size bytes at an offset of the buffer, with tag 0. */
void *ends_send(struct ends *e, size_t at, size_t size);
void *ends_receive(struct ends *e, size_t at, size_t size);
/* test succeeds, writes *size as its personality does, or leaves -1. */
bool ends_done(struct ends *e, void *request, int *size);
/* Until both requests are done; NULL: there is none. Returns the size of the last one. */
int ends_wait(struct ends *e, void *sent, void *received);
/* Until test fails; it never says done. */
enum nccl_result ends_failure(struct ends *e, void *request);
/* 1000 tests, none says done. */
void ends_never(struct ends *e, void *request);
/* iflush gives this request. */
void *ends_flush(struct ends *e, size_t at, int size);
void ends_consume(struct ends *e, void *request);
void ends_in_time(int64_t start);
/* Bytes of the longest message. */
size_t ends_message_max(void);
uint8_t ends_pattern(unsigned message, size_t i);
unsigned ends_descriptors(void);

/* Of a test: nothing of it is in the environment, loopback is the device, pieces have 512 KiB. */
int ends_setup(void **state);
/* In a child: the test is skipped. */
_Noreturn void ends_skip(const char *reason);
/* Runs it in a child; it has to abort, with these words behind the plugin's name. */
void ends_child_aborts(void (*run)(void), const char *says);

/* A test: what a child does over each of these personalities, and how it has to end. */
struct ends_case {
	const char *name;
	void (*run)(void);
	unsigned fakes;
	bool each_version; /* else the newest one alone */
	const char *env;   /* words NAME=VALUE, beside what setup has set; NAME alone: not set */
	const char *says;  /* on standard error */
	int status;
	bool aborts; /* instead of that status, and says it behind the plugin's name */
};
#define NEWEST(name_, run_, fakes_) .name = (name_), .run = (run_), .fakes = (fakes_)
#define EACH(name_, run_, fakes_) NEWEST(name_, run_, fakes_), .each_version = true
int ends_main(const struct ends_case *cases, unsigned n, CMFixtureFunction setup,
	CMFixtureFunction group_setup);

#endif
