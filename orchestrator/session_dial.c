/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_dial.h"

#include <errno.h>

static int read_key(const struct dr_options *o, struct dr_boot_key *key, struct dr_err *e)
{
	return o->key_file ? dr_boot_key_read(o->key_file, key, e) : 0;
}

int dr_dial(const struct dr_dial *d, json_t *offer, struct dr_boot_client **out, struct dr_err *e)
{
	const struct dr_options *o = d->opt;
	struct dr_boot_key key = { { 0 } };
	struct dr_boot_client_opts bo = { .host = o->host,
		.gpus = o->gpus.v,
		.n_gpus = (unsigned)o->gpus.n,
		.port_base = (uint16_t)o->port,
		.pair = d->pair,
		.bind = o->control,
		.key = o->key_file ? &key : NULL,
		.version = DR_VERSION,
		.connect_timeout_ns = d->patience_ns,
		.timing = { .resume_ns = o->timeout_ns } };
	int rc = read_key(o, &key, e);

	if (rc == 0 && !offer)
		rc = dr_err_set(e, -ENOMEM, "out of memory");
	if (rc == 0)
		rc = dr_boot_client_create(out, &bo, offer, d->ops, d->arg, d->poller, e);
	json_decref(offer);
	return rc;
}
