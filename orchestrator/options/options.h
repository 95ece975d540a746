/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_H
#define DR_ORCHESTRATOR_OPTIONS_H

#include "base/commands.h"
#include "base/opts.h"
#include "base/privileges.h"
#include "base/source.h"
#include "gpu/select.h"
#include "orchestrator/options/run.h"
#include "transport/kind.h"

#include <jansson.h>

/*
 * Folder options/: the option rows, their parsing and their checks, and the plain types that they describe
 * (run.h). It knows no other folder of orchestrator/.
 *
 * struct dr_options has every value from the command line, the environment and the configuration file. It
 * is const after dr_options_parse, except for what dr_options_resolve sets.
 */
enum {
	DR_OPTIONS_GPUS_MAX = DR_GPUS_MAX, /* bits of dr_phase.gpu_mask */
	DR_OPTIONS_PHASES_MAX = 128
};

struct dr_tests {
	bool bw, lat, failover;
};

/* --config, in order: a later file replaces the options that it has. */
enum { DR_CONFIG_FILES_MAX = 16 };
struct dr_config_files {
	unsigned n;
	const char *path[DR_CONFIG_FILES_MAX];
};

/* Options that a folder above this one adds to the table. */
struct dr_options;
struct dr_options_part {
	const struct dr_opt_group *group;
	/* Checks what the table cannot, after parsing; as dr_options_parse. */
	int (*check)(const struct dr_options *o, struct dr_err *e);
};

struct dr_options {
	unsigned command;      /* enum dr_command_bit */
	const char *host;      /* client, preflight; doctor: may be NULL */
	const char *host_text; /* as given, also after an error; NULL: not given */
	char *host_copy;       /* HOST without its port: `host` */

	struct dr_tests test;
	const char *transport;
	struct dr_gpu_names gpu_names;
	int memory; /* enum dr_memory_choice */
	/* Set by dr_options_resolve; before that, the numbers of --gpus. */
	struct dr_opt_list gpus;
	bool cuda;
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
	int64_t heartbeat_ns, hold_down_ns;
	int detect, failback; /* enum dr_detect; 0 off, 1 on */

	/* Set by dr_fault_options_attach before parsing; both NULL: the group "Faults" does not exist. */
	struct dr_fault_options *faults; /* target of the group; not owned */
	const struct dr_options_part *fault_part;
	bool dry_run;
	bool repair; /* doctor: nothing else */

	bool verify;
	uint64_t workers, links;
	int poll; /* enum dr_poll_policy */
	struct dr_opt_list pin;

	const char *json_path, *metrics_listen;
	bool json_stream;
	const char *min_bw, *min_nic, *max_lat, *baseline;
	/* Set by the caller before parsing, both NULL: the group of result files does not exist. */
	const struct dr_opt_group *file_group;
	void *files;	    /* its target; not owned */
	int64_t max_gap_ns; /* 0: none */

	const char *key_file, *control;
	uint64_t port;
	const char *data_ports;
	uint16_t data_port_min, data_port_max;
	uint64_t sockbuf, dscp;

	const char *page; /* --output */
	/* compare, report: the arguments, of argv; the last n_new of them are behind the "--" */
	char *const *inputs;
	int n_inputs, n_new;
	double tolerance; /* percent */
	bool allow_differences;

	/* server */
	const char *allow_from;
	struct dr_networks allow; /* n 0: all */
	uint64_t max_memory;	  /* bytes; 0: the default */
	int64_t max_session_ns;	  /* 0: no limit */

	const char *user;
	struct dr_user run_as; /* of --user; name "": this one */

	int64_t connect_timeout_ns, timeout_ns;
	bool one_off;
	struct dr_config_files config;
	int verbose;
	bool quiet, log_json, version, help, help_all, man;

	/* sweep */
	int pattern; /* index into the choices of --pattern */
	uint64_t rank, nodes, reviews;
	const char *coordinator, *hostfile, *resume;
	int64_t join_timeout_ns, pair_timeout_ns;
	double min_pair; /* percent */

	/* plugin */
	const char *file;
	int net_api;	       /* 0: the newest; n: version 5 + n */
	int64_t call_limit_ns; /* for each call and each request */

	bool trusted; /* demo: the client is our own, its faults need no key */

	union dr_kind_params kinds[DR_KINDS_MAX]; /* see dr_options_params */
	struct dr_opts *table;			  /* owns the strings */
};

/*
 * argv[0] is the command's name. o is zeroed apart from the added groups. Also reads the environment and
 * --config, and checks what spans several options. After an error in one source the others are read all the same, so
 * that the result files, host_text and the form of the log are known. -EINVAL, -ERANGE: exit status 1; -ENOENT, -EACCES, -ENOTSUP
 * (transport not in this build): 2. The caller calls dr_options_fini on failure too.
 */
int dr_options_parse(struct dr_options *o, unsigned command, int argc, char *const argv[],
	struct dr_err *e) DR_MUST_CHECK;
/* Resolve the names of GPUs in the process that uses them: sets gpus and cuda for the last time.
 * Errors: those of dr_gpu_select, -ERANGE as above; -ENODEV: --pin names a CPU that the process may not use. */
int dr_options_resolve(struct dr_options *o, struct dr_err *e) DR_MUST_CHECK;
void dr_options_fini(struct dr_options *o);
/* The exit status (enum dr_exit) that an error of dr_options_parse stands for. */
int dr_options_exit(int rc);
/* Bit of a command's name; 0: unknown, or without options (help, completion, schema). */
unsigned dr_options_command(const char *name);
extern const struct dr_opt_command dr_options_command_list[]; /* about.c */
/* The commands' names: "server, client, demo". */
void dr_options_commands(char *buf, size_t len);
/* The table, for help, man page and completion; targets: o and those of added groups. -ENOMEM. */
int dr_options_table(struct dr_options *o, struct dr_opts **out) DR_MUST_CHECK;
/* Level and form of the log. */
void dr_options_apply_log(const struct dr_options *o);

/* The parameters of a transport kind as this end's options say. */
void dr_options_params(
	const struct dr_options *o, const struct dr_transport_kind *k, union dr_kind_params *out);
/* Version of NCCL's network interface; 0: the newest. */
unsigned dr_options_net_api(const struct dr_options *o);

/* "test=bw channels=8 json=r.json": the options that were given, and those that the figures depend on most, as
 * dr_opts_print_kv writes them, with a blank behind each. After dr_options_parse; free() it. NULL: no memory. */
char *dr_options_brief(const struct dr_options *o);
/* "bw,lat" */
void dr_options_tests(const struct dr_options *o, char *buf, size_t len);
/* The phases in order, for each size; returns their number. */
unsigned dr_options_phases(const struct dr_options *o, struct dr_phase *out, unsigned cap);
/* The largest number among --gpus, which are in any order. */
unsigned dr_options_gpu_top(const struct dr_options *o);
/* Largest chunk of any phase. */
uint32_t dr_options_chunk_max(const struct dr_options *o);

#endif
