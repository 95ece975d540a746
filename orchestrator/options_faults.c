/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options_rows.h"

#include <errno.h>
#include <string.h>

/* Faults, and who may inject them. */

static int parse_fault(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_fault_list *l = dst;

	(void)row;
	if (!text) {
		l->n = 0;
		return 0;
	}
	if (l->n == DR_OPTIONS_FAULTS_MAX)
		return dr_err_set(
			e, -ERANGE, "more than %d faults; use repeat=", DR_OPTIONS_FAULTS_MAX);
	int rc = dr_fault_spec_parse(text, &l->v[l->n], e);
	/* The option's name is put in front of every error. */
	if (rc && e && strncmp(e->text, "--fault: ", 9) == 0)
		memmove(e->text, e->text + 9, strlen(e->text + 9) + 1);
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

static const struct dr_opt rows[] = {
	{ .name = "fault",
		.kind = DR_OPT_CUSTOM,
		.arg = "SPEC",
		.parse = parse_fault,
		.repeat = true,
		.commands = RUN,
		.offset = AT(faults),
		.help = "KIND:path=0[,nic=NAME][,side=client|server][,at=2s][,for=1s][,repeat=N]"
			"[,every=S]; kinds: link-down, blackhole[,dir=in|out], loss=PCT, addr-del (the "
			"rail's IP address is taken away), close, manual, exec=NAME; with verbs also "
			"qp-error (the path's queue pairs fail)." },
	{ .name = "allow-faults",
		.kind = DR_OPT_FLAG,
		.commands = ALL,
		.offset = AT(allow_faults),
		.help = "Faults may be injected at this end. A client may ask a server for them only "
			"when both have --key-file." },
	{ .name = "fault-exec",
		.kind = DR_OPT_CUSTOM,
		.arg = "NAME=CMD,UNDO",
		.parse = parse_exec,
		.repeat = true,
		.commands = ALL,
		.offset = AT(execs),
		.help = "Commands for exec=NAME at this end." },
	{ .name = "dry-run",
		.kind = DR_OPT_FLAG,
		.commands = RUN | DOCTOR,
		.offset = AT(dry_run),
		.no_config = true,
		.help = "Print the plan and what the faults would do, then stop; doctor: repair nothing." },
};

const struct dr_opt_group dr_options_faults = { "Faults", rows, DR_ARRAY_LEN(rows) };
