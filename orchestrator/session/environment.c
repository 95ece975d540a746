/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/sysfile.h"
#include "base/units.h"
#include "topology/offload.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The settings of this end that change the figures of a run, as far as the kernel tells them. */

/* Its numbers with blanks between them: a tab would not pass to the peer. */
static void read_sysctl(char *buf, size_t len, const char *name)
{
	dr_sysfile_text(buf, len, "", "/proc/sys/net/ipv4/%s", name);
	for (char *p = buf; (p = strchr(p, '\t')) != NULL;)
		*p = ' ';
}

static void host_row(struct dr_local *l)
{
	struct dr_env_row r;

	dr_fields_init(&dr_env_fields, &r);
	r.side = (int)l->side;
	snprintf(r.kernel, sizeof(r.kernel), "%s", l->rec->host.kernel);
	read_sysctl(r.congestion_control, sizeof(r.congestion_control), "tcp_congestion_control");
	read_sysctl(r.tcp_rmem, sizeof(r.tcp_rmem), "tcp_rmem");
	read_sysctl(r.tcp_wmem, sizeof(r.tcp_wmem), "tcp_wmem");
	dr_sysfile_text(r.cpu_governor, sizeof(r.cpu_governor), "",
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
	dr_limit_cpu("", &l->cpu_before);
	r.cpu_quota = l->cpu_before.cpus;
	dr_record_add(l->rec, environment, &r);
}

void dr_local_record_processor(struct dr_local *l)
{
	struct dr_limit_cpu now;
	struct dr_env_row r;

	dr_fields_init(&dr_env_fields, &r);
	r.side = (int)l->side;
	r.stall_ns = 0;
	for (unsigned i = 0; i < l->n_workers; i++)
		r.stall_ns = DR_MAX(r.stall_ns, dr_worker_late_ns(l->worker[i].w));
	dr_limit_cpu("", &now);
	if (isfinite(now.cpus)) {
		r.throttled = now.throttled - l->cpu_before.throttled;
		r.throttled_ns = now.throttled_ns - l->cpu_before.throttled_ns;
	}
	dr_record_add(l->rec, environment, &r);
}

/* The CPUs of one interrupt, behind those of the others. */
static int add_cpus(const char *irq, void *arg)
{
	struct dr_env_nic_row *r = arg;
	char cpus[64];

	if (dr_sysfile_text(cpus, sizeof(cpus), "", "/proc/irq/%s/effective_affinity_list", irq) >
		0)
		dr_append(r->interrupt_cpus, sizeof(r->interrupt_cpus), "%s%s",
			r->interrupt_cpus[0] ? " " : "", cpus);
	return 0;
}

static void nic_row(struct dr_local *l, const char *name)
{
	struct dr_env_nic_row r;
	struct dr_offload o;
	struct dr_netdev d;
	char dir[64];

	if (dr_netdev_by_name(name, &d, NULL))
		return;
	dr_fields_init(&dr_env_nic_fields, &r);
	r.side = (int)l->side;
	snprintf(r.nic, sizeof(r.nic), "%s", name);
	r.mtu = d.mtu;
	snprintf(r.qdisc, sizeof(r.qdisc), "%s", d.qdisc);
	if (d.gso_max)
		r.gso_max = d.gso_max;
	if (d.gro_max)
		r.gro_max = d.gro_max;
	dr_offload_read(name, &o);
	r.tso = o.tso;
	r.gso = o.gso;
	r.gro = o.gro;
	snprintf(r.driver, sizeof(r.driver), "%s", o.driver);
	snprintf(r.firmware, sizeof(r.firmware), "%s", o.firmware);
	if (d.pci[0] &&
		dr_sysfile_path(dir, sizeof(dir), "", "/sys/bus/pci/devices/%s/msi_irqs", d.pci))
		dr_sysfile_each("", dir, add_cpus, &r);
	dr_record_add(l->rec, environment_nics, &r);
}

void dr_local_record_environment(struct dr_local *l)
{
	host_row(l);
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		nic_row(l, l->plan->rail[i][l->side].name);
}
