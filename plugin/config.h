/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_CONFIG_H
#define DR_PLUGIN_CONFIG_H

#include "base/err.h"
#include "base/log.h"
#include "base/opts.h"
#include "channel/manager.h"
#include "plugin/names.h"
#include "transport/kind.h"

/*
 * The plugin's configuration: variables of the environment, read once when the plugin starts and
 * constant afterwards. One table (base/opts.h) has every variable: it defines the parser, the
 * variables in the line that states what is in force, and the table of docs/NCCL_PLUGIN.md.
 *
 * An empty variable counts as not set. A wrong value is an error that names the variable, the value
 * and what is accepted. A variable without effect is reported: variables of this plugin
 * (HA_NCCL_...) as warnings, those of NCCL at level INFO, because NCCL itself uses them too.
 */
enum ha_transport { HA_TRANSPORT_AUTO, HA_TRANSPORT_TCP, HA_TRANSPORT_VERBS };
enum ha_family { HA_FAMILY_ANY, HA_FAMILY_INET, HA_FAMILY_INET6 };

enum {
	HA_THREADS_MAX = 32,
	HA_LANES_MAX = 16, /* of one thread; fewer than DR_CHANNELS_MAX */
	HA_EAGER_MAX = 256 << 10,
	HA_PATH_BYTES = 512,
};

struct ha_config {
	int transport;			      /* enum ha_transport, as asked for */
	const struct dr_transport_kind *kind; /* in force */

	struct ha_names devices; /* HA_NCCL_DEVICES, else NCCL_SOCKET_IFNAME */
	const char
		*devices_variable; /* the one that is set; NULL: devices are chosen automatically */
	int family;		   /* enum ha_family: of the addresses that are used */
	uint64_t speed_mbps;	   /* reported for every device; 0: the device's own */

	int backup; /* 0 or 1, as the other switches: comms have a second path on another device */
	int detect; /* enum dr_detect */
	int64_t heartbeat_ns;
	int64_t rto_ns; /* detection bound in mode conservative, at least the transport's */
	int failback;
	int64_t hold_down_ns;
	int64_t connect_timeout_ns;

	uint64_t threads;  /* I/O threads of the process, >= 1 */
	uint64_t lanes;	   /* bulk lanes of a session for each of them */
	uint64_t spin_us;  /* see ha_thread_start */
	uint64_t chunk;	   /* bytes */
	uint64_t eager;	   /* messages up to this size are copied and sent at once, bytes */
	uint64_t sockbuf;  /* bytes; 0: set by the kernel */
	uint16_t ports[2]; /* first and last one to listen on; 0: the kernel's choice */
	int progress_thread;
	uint64_t test_max_poll; /* events that one call of test handles at most */

	enum dr_log_level log_level;
	int debug;
	char metrics_file[HA_PATH_BYTES]; /* "": none; host name and process id are filled in */

	/* For the verbs transport. */
	struct ha_names rdma_devices;
	union dr_kind_params params; /* of the rails */

	/* "; NAME=VALUE NAME=VALUE": changed variables that ha_config_describe does not state. */
	char changed[512];
};

extern const struct dr_opt_group ha_variables;

/* What the defaults and %h and %p depend on. */
struct ha_host {
	unsigned cpus;	  /* that this process may use */
	bool rdma;	  /* has an RDMA device with an active port: transport auto means verbs */
	int pid;	  /* %p */
	const char *name; /* %h */
};

/*
 * env: entries "NAME=VALUE", ended by NULL. Reports variables without effect and misspelled ones through dr_log.
 * -EINVAL and -ERANGE: a wrong value; -ENOTSUP: a transport that this build does not have.
 */
int ha_config_parse(struct ha_config *out, char *const *env, const struct ha_host *host,
	struct dr_err *e) DR_MUST_CHECK;
/* The same from this process's environment. rdma false: as on a host without RDMA devices. */
int ha_config_read(struct ha_config *out, bool rdma, struct dr_err *e) DR_MUST_CHECK;
/* The data goes over RDMA devices. */
bool ha_config_is_verbs(const struct ha_config *c);

/* Sets the parameters of a session's managers that the configuration decides: transport, detection, failback, sockets.
 * Other members are left as they are. c has to outlive the managers. */
void ha_config_manager(const struct ha_config *c, struct dr_manager_params *p);
/* rc; e says of -EADDRINUSE which range of ports is taken and how many are needed. */
int ha_config_taken(const struct ha_config *c, int rc, struct dr_err *e);
/* Time after which a fault is detected at the latest (dr_manager_detect_bound); DR_NEVER. */
int64_t ha_config_detect_bound(const struct ha_config *c);

/* For one line at level INFO: what is in force, then the variables whose values differ from their defaults. devices:
 * names of the devices. At most 900 bytes are useful: NCCL truncates its lines at about 1000. */
struct ha_about {
	const char *version, *build, *devices;
};
void ha_config_describe(
	const struct ha_config *c, const struct ha_about *about, char *buf, size_t len);

#endif
