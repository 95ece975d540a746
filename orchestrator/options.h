/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_H
#define DR_ORCHESTRATOR_OPTIONS_H

#include "base/opts.h"
#include "orchestrator/fault/fault.h"
#include "orchestrator/gpus.h"
#include "orchestrator/worker.h"

#include <jansson.h>

/*
 * Everything that server, client and demo take on the command line, from the environment and from
 * a configuration file; const after dr_options_parse.
 */
enum dr_command_bit {
	DR_CMDBIT_SERVER = 1,
	DR_CMDBIT_CLIENT = 2,
	DR_CMDBIT_DEMO = 4,
	DR_CMDBIT_TOPO = 8,
	DR_CMDBIT_DOCTOR = 16,
	DR_CMDBIT_RUN = DR_CMDBIT_CLIENT | DR_CMDBIT_DEMO, /* those that decide what is measured */
	DR_CMDBIT_ALL = DR_CMDBIT_SERVER | DR_CMDBIT_RUN,  /* those that move data */
};

enum { DR_OPTIONS_GPUS_MAX = DR_GPUS_MAX, DR_OPTIONS_FAULTS_MAX = 32, DR_OPTIONS_PHASES_MAX = 128 };

struct dr_fault_list {
	unsigned n;
	struct dr_fault_spec v[DR_OPTIONS_FAULTS_MAX];
};
struct dr_tests {
	bool bw, lat, failover;
};

struct dr_options {
	unsigned command; /* enum dr_command_bit */
	const char *host; /* client; doctor: may be NULL */

	struct dr_tests test;
	const char *transport;
	struct dr_gpu_names gpu_names;
	int memory; /* enum dr_memory_choice */
	/* What they come to: by dr_options_resolve; before that, the numbers of --gpus. */
	struct dr_opt_list gpus;
	bool cuda;
	bool pair;
	uint64_t channels, window, chunk, size, begin, end, factor;
	int64_t duration_ns, interval_ns;
	uint64_t iters;
	const char *warmup; /* a time with --duration, a number with --iters */
	int64_t warmup_ns;
	uint64_t warmup_iters;
	bool bidir, reverse, matrix;
	double rate_bits; /* of a GPU and direction; 0: none */

	const char *rails, *map, *spread;
	const char *topology; /* hwloc XML; NULL: this machine */
	/* verbs: what the client says holds at both ends, gid and lazy at this one alone */
	uint64_t qps, sl, tc, ib_timeout, ib_retry;
	int mtu; /* 0: the port's; else 128 << mtu bytes */
	int gid; /* -1: by the rail's address */
	int lazy;
	int64_t heartbeat_ns, hold_down_ns;
	int detect, failback; /* enum dr_detect; 0 off, 1 on */

	struct dr_fault_list faults;
	bool allow_faults, dry_run;
	struct dr_fault_execs execs;

	bool verify;
	uint64_t seed, workers, links;
	int poll; /* enum dr_poll_policy */
	struct dr_opt_list pin;

	const char *json_path, *csv_path, *prom_path, *metrics_listen;
	bool json_stream;
	const char *min_bw, *baseline, *save_baseline;
	int64_t max_gap_ns; /* 0: none */

	const char *key_file, *control;
	uint64_t port;
	const char *data_ports;
	uint16_t data_port_min, data_port_max;
	uint64_t sockbuf, dscp;

	int64_t connect_timeout_ns, timeout_ns;
	bool one_off;
	const char *config;
	int verbose;
	bool quiet, log_json, trace_requests, version, help, man;

	bool trusted; /* demo: the client is our own, its faults need no key */

	struct dr_opts *table; /* owns the strings */
};

/*
 * argv[0] is the command's name. o is zeroed memory. Reads the environment and --config too, checks
 * what the table cannot. -EINVAL, -ERANGE: exit status 1; -ENOENT, -EACCES, -ENOTSUP (transport not
 * in this build): 2. On failure too dr_options_fini is owed.
 */
int dr_options_parse(struct dr_options *o, unsigned command, int argc, char *const argv[],
	struct dr_err *e) DR_MUST_CHECK;
/* Which GPUs are meant, in the process that will use them: the last moment at which gpus and cuda change.
 * Errors: those of dr_gpus_resolve, -ERANGE as above. */
int dr_options_resolve(struct dr_options *o, struct dr_err *e) DR_MUST_CHECK;
void dr_options_fini(struct dr_options *o);
/* The exit status (enum dr_exit) that an error of dr_options_parse stands for. */
int dr_options_exit(int rc);
/* Help of a command, or of all (0); the man page's option sections. */
void dr_options_help(unsigned command, FILE *f);
void dr_options_man(FILE *f);
/* Level and form of the log. */
void dr_options_apply_log(const struct dr_options *o);

/* The phases in order, for each size; returns their number. */
unsigned dr_options_phases(const struct dr_options *o, struct dr_phase *out, unsigned cap);
/* The largest number among --gpus, which are in any order. */
unsigned dr_options_gpu_top(const struct dr_options *o);
/* Largest chunk of any phase. */
uint32_t dr_options_chunk_max(const struct dr_options *o);

#endif
