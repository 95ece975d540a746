/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/verbs.h"

#include <string.h>

/* NCCL's defaults are timeout 20 and retry 7, which is half a minute; a tool that measures failover
 * takes perftest's timeout and the retries that every RC driver bounds except rxe. */
void dr_verbs_params_init(struct dr_verbs_params *p)
{
	memset(p, 0, sizeof(*p));
	p->gid_index = -1;
	p->timeout = 14;
	p->retry = 7;
	p->qps = 1;
}

/* IBA 9.7.6.1.3: a NIC may take up to four times its local ACK timeout; this is the nominal value. */
int64_t dr_verbs_retry_ns(const struct dr_verbs_params *p)
{
	return p->timeout == 0 ? DR_NEVER : INT64_C(4096) << p->timeout;
}

int64_t dr_verbs_window_ns(const struct dr_verbs_params *p)
{
	int64_t retry = dr_verbs_retry_ns(p);

	return retry == DR_NEVER ? DR_NEVER : retry * (p->retry + 1);
}
