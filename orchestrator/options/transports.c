/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

#include "base/units.h"
#include "channel/manager.h"

#include <errno.h>
#include <string.h>

/*
 * The options of the transport kinds. Each kind has a group of rows in its descriptor and params of
 * its own; both come from the registry, so no kind is named here.
 */

static size_t kind_index(const struct dr_transport_kind *k)
{
	size_t i = 0;

	while (dr_transport_kind_at(i) != k)
		dr_assert(dr_transport_kind_at(i++));
	return i;
}

/* What follows the colon of --transport KIND:ARGUMENT; NULL: nothing. */
static const char *argument_of(const struct dr_options *o)
{
	const char *colon = strchr(o->transport, ':');

	return colon ? colon + 1 : NULL;
}

unsigned dr_options_net_api(const struct dr_options *o)
{
	return o->net_api ? 5 + (unsigned)o->net_api : 0;
}

void dr_options_params(
	const struct dr_options *o, const struct dr_transport_kind *k, union dr_kind_params *out)
{
	*out = o->kinds[kind_index(k)];
	if (k->file)
		k->file(out, k == dr_transport_kind(o->transport) ? argument_of(o) : NULL,
			dr_options_net_api(o));
}

/* ---- what only the kind can check ---- */

/* Only what was typed for this run: variables of the environment may be meant for other programs. */
static int check_others(
	const struct dr_options *o, const struct dr_transport_kind *chosen, struct dr_err *e)
{
	const struct dr_transport_kind *k;

	if (!chosen->file && strcmp(dr_opts_source(o->table, "net-api"), "command line") == 0)
		return dr_err_set(e, -EINVAL,
			"--net-api means nothing with --transport %s; use --transport nccl:FILE",
			chosen->name);
	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++)
		for (size_t r = 0; k != chosen && r < k->options.n; r++) {
			const char *name = k->options.rows[r].name;

			if (strcmp(dr_opts_source(o->table, name), "command line") == 0)
				return dr_err_set(e, -EINVAL,
					"--%s means nothing with --transport %s; use --transport %s",
					name, chosen->name, k->name);
		}
	return 0;
}

int dr_options_check_transport(const struct dr_options *o, struct dr_err *e)
{
	const struct dr_transport_kind *k = dr_transport_kind(o->transport);
	bool follows = o->command == DR_CMDBIT_SERVER && !dr_opts_given(o->table, "transport");
	union dr_kind_params params;
	char names[64];
	int rc = 0;

	if (!k)
		return dr_err_set(e, -ENOTSUP, "transport %s is not in this build (built: %s)",
			o->transport, dr_transport_names(names, sizeof(names)));
	if (!follows)
		rc = check_others(o, k, e);
	if (rc == 0 && !follows && o->detect == DR_DETECT_TRANSPORT && !k->fails_over)
		rc = dr_err_set(e, -EINVAL,
			"--detect transport needs a transport that moves to another NIC by itself; use it with "
			"--transport nccl:FILE, or use --detect conservative");
	if (rc || !k->check)
		return rc;
	dr_options_params(o, k, &params);
	return k->check(&params, o->detect == DR_DETECT_CONSERVATIVE, e);
}

/* ---- help ---- */

void dr_options_help_transports(char *buf, size_t len)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++) {
		dr_append(buf, len, "%s%s%s%s (%s", i ? "; " : "Kinds: ", k->name,
			k->argument ? ":" : "", k->argument ? k->argument : "", k->about);
		if (k->package)
			dr_append(buf, len, ", needs %s at run time", k->package);
		dr_append(buf, len, ")");
	}
	dr_append(buf, len, ".");
}

void dr_options_help_nics(char *buf, size_t len)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++)
		if (k->nics_help)
			dr_append(
				buf, len, "%sWith %s %s.", *buf ? " " : "", k->name, k->nics_help);
}

void dr_options_words_transports(char *buf, size_t len)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++)
		dr_append(buf, len, "%s%s", i ? "|" : "", k->name);
}
