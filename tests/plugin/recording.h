/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_RECORDING_H
#define DR_TESTS_PLUGIN_RECORDING_H

#include <stddef.h>
#include <stdint.h>

/* What record_plugin.c wrote: the calls of the processes of a job, one after another. record_plugin.c says what the
 * numbers of a call are. */
enum rec_verb {
	REC_INIT,
	REC_DEVICES,
	REC_PROPERTIES,
	REC_LISTEN,
	REC_CONNECT,
	REC_ACCEPT,
	REC_UP,
	REC_REGISTER,
	REC_UNREGISTER,
	REC_SEND,
	REC_RECV,
	REC_FLUSH,
	REC_DONE,
	REC_ATTRIBUTES,
	REC_CLOSE_SEND,
	REC_CLOSE_RECV,
	REC_CLOSE_LISTEN,
	REC_FINALIZE,
	REC_VERBS
};
enum {
	REC_PROCESSES_MAX = 2,
	REC_BUFFERS_MAX = 8,
	REC_ARGS_MAX = 5 + 4 * REC_BUFFERS_MAX,
	/* Numbers of contexts, listen comms, comms and registrations are below that, those of requests below the other. */
	REC_OBJECTS_MAX = 512,
	REC_REQUESTS_MAX = 1 << 16,
};

struct rec_call {
	enum rec_verb verb;
	unsigned line, n;
	int64_t *arg; /* n of them; a handle's hash is one number */
};
struct recording {
	struct rec_process {
		struct rec_call *call;
		unsigned n;
	} process[REC_PROCESSES_MAX];
	unsigned n;
};

/* 0, or -errno with the reason in why. What was read is never freed. */
int rec_read(struct recording *out, const char *file, char *why, size_t len);
const char *rec_verb_name(enum rec_verb v);

#endif
