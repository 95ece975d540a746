/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_PLAN_PLAN_H
#define DR_ORCHESTRATOR_PLAN_PLAN_H

#include "bootstrap/bootstrap.h"
#include "channel/manager.h"
#include "orchestrator/options/run.h"
#include "topology/nic_list.h"
#include "topology/topo.h"
#include "transport/kind.h"

/*
 * Folder plan/: the plan of a run, its offer and reply, and the placement of GPUs, rails and workers.
 *
 * What both ends of a run agree on: GPUs, rails, channels and the paths of each channel. The client
 * decides and offers; the server matches its rails to the client's and answers; from then on both
 * ends compute the same plan from the same numbers. No I/O and no clock: JSON in, JSON out.
 *
 * Channels of every GPU, numbered alike at both ends: N from client to server (unless -R), then N
 * from server to client (-R or --bidir), then for the latency test one each way.
 */
enum {
	DR_PLAN_GPUS_MAX = DR_BOOT_GPUS_MAX,
	DR_PLAN_CHUNK_MAX = 64 << 20,
	DR_PLAN_FAULTS_MAX = 32,
	DR_PLAN_FAULT_BYTES = 192, /* longer ones are not sent with the offer */
	DR_PLAN_HANDLES_MAX = 2 * DR_RAILS_MAX + DR_GPU_CHANNELS_MAX
};

struct dr_plan_rail {
	char name[IFNAMSIZ];
	char address[64];
	struct sockaddr_storage addr;
	unsigned prefix;
	int64_t speed_mbps; /* -1 unknown */
	int ifindex;	    /* local rails only */
	unsigned mtu;	    /* of the NIC; 0 unknown */
	uint16_t mtu_port;  /* UDP port of the test of the path MTU; 0: none */
	uint8_t nic;  /* its end's number of the NIC, and the column of `locality` of the client */
	uint8_t rank; /* enum dr_nic_rank */
	bool routed;  /* the pair shares no subnet: gateways are in between; set at both ends */
	struct dr_routes routes; /* of the client's end, for the server's match */
};

/* EACH: n_each channels on every rail, channel c's primary is rail c % n_rails (--matrix). */
enum dr_spread { DR_SPREAD_NEAREST, DR_SPREAD_ALL, DR_SPREAD_LIST, DR_SPREAD_EACH };

/* As a primary in dr_plan.map: the automatic map. */
#define DR_PLAN_AUTO 0xffffffffu
struct dr_plan_map {
	unsigned primary, shadow; /* equal: unprotected */
};

struct dr_plan {
	char transport[DR_KIND_NAME_MAX]; /* kind of the data paths, the client's choice */
	union dr_kind_params
		kind_params; /* of that kind at this end; the shared part is the client's */
	/* GPUs by position; gpu[][0] is the client's number, gpu[][1] the server's. */
	unsigned n_gpus;
	unsigned gpu[DR_PLAN_GPUS_MAX][2];
	/* Rails in the session's numbering: [0] the client's end, [1] the server's. */
	unsigned n_rails;
	struct dr_plan_rail rail[DR_RAILS_MAX][2];
	/* What the client offers (dr_netdev_rails). Until the reply the NICs that are rails
	 * whatever the server has are its end of rail[]. */
	unsigned n_offered;
	struct dr_plan_rail offered[DR_NICS_MAX];
	bool rails_auto; /* the client did not name its rails: those without a partner are left out */
	/* Distances from each end's GPUs to its rails; n_gpus 0: unknown. The client's columns are numbered
	 * as it offered its rails, the server's as in rail[]. */
	struct dr_locality locality[2];
	unsigned n_auto; /* from dr_plan_settle; 0: GPUs are assigned round-robin */
	struct dr_locality_choice auto_map[DR_PLAN_GPUS_MAX];
	const struct dr_topo *topo; /* this end's machine, for `locality`; NULL unknown. Borrowed */
	/* Per GPU position; n_map 0: automatic. */
	unsigned n_map;
	struct dr_plan_map map[DR_PLAN_GPUS_MAX];
	enum dr_spread spread;
	unsigned n_spread, spread_list[DR_RAILS_MAX];
	/* Channels a direction; with DR_SPREAD_EACH on each rail, however many of those take part. */
	unsigned n_each;
	bool forward, reverse, lat;
	unsigned window;
	uint32_t chunk_max;
	/* Failure detection and failover. */
	int64_t heartbeat_ns, hold_down_ns, lost_after_ns;
	int64_t interval_ns; /* reporting interval of received data at both ends; 0: disabled */
	enum dr_detect detect;
	bool failback;
	uint64_t seed; /* of the pattern that --verify compares; drawn by the client */
	int sockbuf, dscp;
	bool server_faults; /* the client will request faults at the server: */
	unsigned n_server_fault;
	char server_fault[DR_PLAN_FAULTS_MAX][DR_PLAN_FAULT_BYTES]; /* as in --fault */
};

enum dr_plan_end { DR_PLAN_CLIENT, DR_PLAN_SERVER };

/* Channels of a GPU: of bulk data in one direction, of bulk data, all. */
unsigned dr_plan_per_direction(const struct dr_plan *p);
unsigned dr_plan_n_bulk(const struct dr_plan *p);
unsigned dr_plan_n_channels(const struct dr_plan *p);
/*
 * Open files of a run at one end: a socket of each path; per GPU a listener and a datagram
 * socket on each rail, one of the bootstrap, and six of its worker; two sockets on each rail for
 * the heartbeats; control, log and guard.
 */
static inline uint64_t dr_plan_files(unsigned gpus, unsigned channels, unsigned rails)
{
	return (uint64_t)gpus * (2 * channels + 2 * rails + 7) + 2 * rails + 16;
}
/* Handles of a GPU in each direction: one per rail, one per channel, and the last ones: of the peer
 * (channel/peer.h), one per rail. */
unsigned dr_plan_n_handles(const struct dr_plan *p);
unsigned dr_plan_n_peer_handles(const struct dr_plan *p);
/* The rails that may be primaries: a routed one is a shadow only, unless all rails are routed. Returns
 * how many are in `list`. */
unsigned dr_plan_direct(const struct dr_plan *p, unsigned list[DR_RAILS_MAX]);
/* Does data of this channel leave the client? */
bool dr_plan_from_client(const struct dr_plan *p, unsigned channel);
/* The rails of channel `channel` of the GPU at `position`. */
struct dr_plan_map dr_plan_paths(const struct dr_plan *p, unsigned position, unsigned channel);
/* Has each GPU of the phase a channel for it in each direction? Otherwise it would never end. */
bool dr_plan_fits_phase(const struct dr_plan *p, const struct dr_phase *phase);
/* -EINVAL: counts out of range, a rail that is not there, too many channels (DR_GPU_CHANNELS_MAX). */
int dr_plan_check(const struct dr_plan *p, struct dr_err *e) DR_MUST_CHECK;
/* The same, and the automatic map from `locality`; to be called when GPUs or rails have changed. Both ends
 * come to the same map. */
int dr_plan_settle(struct dr_plan *p, struct dr_err *e) DR_MUST_CHECK;

/* Local rails as found by dr_netdev_rails: one as the plan has it; all into the client's offer. */
void dr_plan_set_rail(struct dr_plan_rail *out, const struct dr_netdev_rail *r);
void dr_plan_set_rails(struct dr_plan *p, const struct dr_netdev_rail *r, unsigned n);
/*
 * --map "GPU=RAIL,RAIL;GPU=RAIL": rails by name, address or number; GPUs that are not named keep the
 * automatic map. Needs the client's rails and GPUs in the plan. -EINVAL.
 */
int dr_plan_parse_map(struct dr_plan *p, const char *s, struct dr_err *e) DR_MUST_CHECK;
/* --spread nearest|all|RAIL,RAIL... -EINVAL. */
int dr_plan_parse_spread(struct dr_plan *p, const char *s, struct dr_err *e) DR_MUST_CHECK;

/* transport.c. The kind of the data paths; NULL: not in this build. */
const struct dr_transport_kind *dr_plan_kind(const struct dr_plan *p);
/* The client's kind and its parameters. */
struct dr_options;
void dr_plan_set_transport(struct dr_plan *p, const struct dr_options *o);
/* The server takes the client's kind, of which it has read the shared parameters, and adds its own.
 * -EPROTO when its options name another kind, -ENOTSUP when this build does not have the client's. */
int dr_plan_follow_transport(struct dr_plan *p, const struct dr_options *o, struct dr_err *e)
	DR_MUST_CHECK;
/* The server has no key, so the client has proven nothing. */
void dr_plan_distrust(struct dr_plan *p);
/* The kind and the shared parameters in the offer: 0 or -1 for no memory; -EPROTO. p->detect is known. */
int dr_plan_put_transport(const struct dr_plan *p, json_t *offer);
int dr_plan_read_transport(struct dr_plan *p, const json_t *offer, struct dr_err *e) DR_MUST_CHECK;

/* The peer's handles of the rails, in order, name the hosts of its NICs in the plan; invalid ones are left to the rails. `end` is this end. -EPROTO. */
int dr_plan_check_hosts(const struct dr_plan *p, enum dr_plan_end end,
	const struct dr_handle *handles, struct dr_err *e) DR_MUST_CHECK;

/* The offer of the client: a new JSON object, or NULL: no memory. */
json_t *dr_plan_offer(const struct dr_plan *p);
/* The server reads it. -EPROTO for bytes that make no sense. */
int dr_plan_read_offer(struct dr_plan *p, const json_t *offer, struct dr_err *e) DR_MUST_CHECK;
/*
 * The server pairs its own NICs with those that the client offers, as topology/nic_list.h states.
 * Rails that the client named or mapped must all find a partner. At most DR_RAILS_MAX pairs are
 * rails, the first ones of the client's order.
 * -EADDRNOTAVAIL with both lists and what to do.
 */
int dr_plan_pair_nics(struct dr_plan *p, const struct dr_netdev_rail *own, unsigned n_own,
	bool own_named, struct dr_err *e) DR_MUST_CHECK;
/* The answer of the server, and the client reads it: which of its rails take part, with whom. */
json_t *dr_plan_reply(const struct dr_plan *p);
int dr_plan_read_reply(struct dr_plan *p, const json_t *reply, struct dr_err *e) DR_MUST_CHECK;

/* A manager's parameters at this end (token, ports, GPU and position are the caller's); p outlives the manager. */
void dr_plan_manager(const struct dr_plan *p, enum dr_plan_end end, struct dr_manager_params *out);
/* The channels of the GPU at `position`, by number. Returns how many. */
unsigned dr_plan_channels(const struct dr_plan *p, enum dr_plan_end end, unsigned position,
	struct dr_manager_channel out[DR_GPU_CHANNELS_MAX]);
/* locality.c. `locality` of the end from p->topo, its rails and GPUs as they are numbered now. */
void dr_plan_measure(struct dr_plan *p, enum dr_plan_end end);
/* Why the GPU has its primaries, for people: "same PCI switch", "spread by number: ...". */
void dr_plan_reason(const struct dr_plan *p, unsigned position, char *buf, size_t len);

/* "GPU 0-3,6 <-> 0-3,6: primary eth1 10.0.0.1, shadow eth2 10.1.0.1 (routed) (same PCI switch)" for
 * people: of all GPUs with the rails of the one at `position`. why: with the reason. False: an
 * earlier GPU has the same. */
bool dr_plan_describe(const struct dr_plan *p, enum dr_plan_end end, unsigned position, bool why,
	char *buf, size_t len);
/* Is the client's management NIC the only direct rail, or the only rail? */
bool dr_plan_on_spare(const struct dr_plan *p);
/* "rail 1 is routed: ..." for people; false: it is not. */
bool dr_plan_describe_routed(const struct dr_plan *p, unsigned rail, char *buf, size_t len);

#endif
