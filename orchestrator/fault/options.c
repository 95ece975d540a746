/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/options.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct dr_fault_options, field)

static int parse_fault(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_fault_list *l = dst;

	(void)row;
	if (!text) {
		l->n = 0;
		return 0;
	}
	if (l->n == DR_FAULTS_MAX)
		return dr_err_set(e, -ERANGE, "more than %d faults; use repeat=", DR_FAULTS_MAX);
	int rc = dr_fault_spec_parse(text, &l->v[l->n], e);
	if (rc == 0)
		l->n++;
	return rc;
}

static int parse_exec(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	(void)row;
	if (!text) {
		dr_fault_execs_fini(dst);
		return 0;
	}
	return dr_fault_execs_add(dst, text, e);
}

/* clang-format off */
static const struct dr_opt rows[] = {
	{ .name = "fault", .kind = DR_OPT_CUSTOM, .arg = "SPEC",
	  .parse = parse_fault, .repeat = true, .commands = DR_CMDBIT_FAULTY, .offset = AT(list),
	  .help_more = dr_fault_kinds_help, .words = dr_fault_kinds_words,
	  .brief = "break a path, e.g. link-down:path=0,repeat=10",
	  .help = "KIND[:KEY=VALUE[,KEY=VALUE]...]. Break a path. Keys: path=0|1 (primary or shadow; "
		  "default: 0), nic=NAME (default: the NIC of that path), side=client|server (default: "
		  "client), at=TIME (first time; default: 2s), for=TIME (default: 1s, at most 1h; 0: until the end), "
		  "repeat=N (default: 1), every=TIME (default: for + 3s), gpu=N (whose path; default: "
		  "the first GPU, with close and qp-error all), channel=N (the same). Kinds:" },
	{ .name = "allow-faults", .kind = DR_OPT_FLAG,
	  .commands = DR_CMDBIT_SERVER | DR_CMDBIT_FAULTY, .offset = AT(allow),
	  .brief = "permit faults at this end",
	  .help = "Allow faults to be injected at this end (demo: always). A client may request "
		  "them at a server only if both have --key-file; for these the client needs no "
		  "--allow-faults." },
	{ .name = "fault-exec", .kind = DR_OPT_CUSTOM, .arg = "NAME=CMD,UNDO",
	  .parse = parse_exec, .repeat = true, .offset = AT(execs),
	  .commands = DR_CMDBIT_SERVER | DR_CMDBIT_FAULTY | DR_CMDBIT_DOCTOR,
	  .help = "Define exec=NAME at this end: a command and the one that undoes it. Write a "
		  "comma inside a command as \"\\,\". A start and doctor undo with it what a killed "
		  "run left." },
	{ .name = "fault-nics", .kind = DR_OPT_STRING, .arg = "LIST",
	  .commands = DR_CMDBIT_SERVER | DR_CMDBIT_FAULTY, .offset = AT(nics),
	  .help = "The only NICs (eth1,eth2) of this end on which faults may act, exec= included. Default: all "
		  "NICs that carry a path of the run. close and qp-error act on paths." },
};
/* clang-format on */

static int check(const struct dr_options *o, struct dr_err *e)
{
	const struct dr_fault_list *l = &o->faults->list;
	int rc = 0;

	if (l->n && !o->test.failover)
		return dr_err_set(e, -EINVAL, "--fault needs --test failover");
	for (const char *p = o->faults->nics; p && *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") - 1 >= IFNAMSIZ - 1ul || strcspn(p, " @/:") < strcspn(p, ","))
			return dr_err_set(
				e, -EINVAL, "--fault-nics: '%.40s' is not a list of NICs", p);
	for (unsigned i = 0; i < l->n && rc == 0; i++)
		rc = dr_kind_fault_check(
			dr_transport_kind(o->transport), dr_fault_name(&l->v[i]), e);
	return rc;
}

void dr_fault_options_attach(struct dr_fault_options *f, struct dr_options *o)
{
	static const struct dr_opt_group group = { "Faults", rows, DR_ARRAY_LEN(rows) };
	static const struct dr_options_part part = { &group, check };

	o->faults = f;
	o->fault_part = &part;
}

struct dr_guard_options dr_fault_options_guard(const struct dr_fault_options *f)
{
	return (struct dr_guard_options){ .execs = &f->execs,
		.nics = f->nics,
		.own = f->list.v,
		.n_own = f->list.n,
		.for_max_ns = DR_FAULT_FOR_MAX_NS };
}

void dr_fault_options_fini(struct dr_fault_options *f)
{
	dr_fault_execs_fini(&f->execs);
}
