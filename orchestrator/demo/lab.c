/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: only descriptors and the processes inside keep a namespace of the lab alive; there is no bind mount
 * and no name. The caller never leaves its own namespace: a thread of its own does all set-up.
 */
#include "orchestrator/demo/lab.h"

#include "topology/netdev.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int explain(struct dr_err *e, int rc, const char *what)
{
	if (rc == -EPERM)
		return dr_err_set(e, rc,
			"lab: %s: %s; needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root; in a container: "
			"--privileged)",
			what, strerror(EPERM));
	return dr_err_set(e, rc, "lab: %s: %s", what, strerror(-rc));
}

/* The calling thread moves into a new network namespace; *out is its descriptor. */
static int new_netns(int *out, struct dr_err *e)
{
	if (unshare(CLONE_NEWNET) < 0)
		return explain(e, -errno, "make a network namespace");
	*out = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *out < 0 ? explain(e, -errno, "open the new namespace") : 0;
}

void dr_lab_address(const struct dr_lab *lab, unsigned node, unsigned link, char *buf, size_t len)
{
	snprintf(buf, len, "10.77.%u.%u", link == lab->n_links ? 255 : link, node + 1);
}

static int add_text_addr(int ifindex, const char *text, unsigned prefix, struct dr_err *e)
{
	struct sockaddr_storage ss;
	int rc = dr_netdev_addr_parse(text, &ss);

	return rc < 0 ? dr_err_set(e, rc, "lab: bad address %s", text)
		      : dr_netdev_add_addr(ifindex, (struct sockaddr *)&ss, prefix, e);
}

static void device_name(const struct dr_lab *lab, unsigned link, char *buf, size_t len)
{
	if (link == lab->n_links)
		snprintf(buf, len, "ctl0");
	else
		snprintf(buf, len, "rail%u", link);
}

/* In node's namespace: addresses on one link's device, then up. */
static int set_up_device(const struct dr_lab *lab, unsigned node, unsigned link, struct dr_err *e)
{
	char name[IFNAMSIZ], text[64];
	struct dr_netdev d;

	device_name(lab, link, name, sizeof(name));
	int rc = dr_netdev_by_name(name, &d, e);
	if (rc < 0)
		return rc;
	dr_lab_address(lab, node, link, text, sizeof(text));
	rc = add_text_addr(d.ifindex, text, link == lab->n_links ? 30 : 24, e);
	if (rc == 0 && link < lab->n_links) {
		snprintf(text, sizeof(text), "fd77:%u::%u", link, node + 1);
		rc = add_text_addr(d.ifindex, text, 64, e);
		if (rc == -EACCES || rc == -EOPNOTSUPP || rc == -EAFNOSUPPORT)
			rc = 0; /* IPv6 is disabled: IPv4 only */
	}
	return rc < 0 ? rc : dr_netdev_set_up(d.ifindex, true, e);
}

static int set_up_links(const struct dr_lab *lab, unsigned mtu, struct dr_err *e)
{
	int rc = dr_lab_enter(lab, 0, e);

	for (unsigned i = 0; i <= lab->n_links && rc == 0; i++) {
		char name[IFNAMSIZ];

		device_name(lab, i, name, sizeof(name));
		rc = dr_netdev_create_veth(
			name, name, lab->netns_fd[1], i == lab->n_links ? 1500 : mtu, e);
	}
	for (unsigned node = 0; node < DR_LAB_NODES && rc == 0; node++) {
		struct dr_netdev lo;

		rc = dr_lab_enter(lab, node, e);
		if (rc == 0)
			rc = dr_netdev_by_name("lo", &lo, e);
		if (rc == 0)
			rc = dr_netdev_set_up(lo.ifindex, true, e);
		for (unsigned i = 0; i <= lab->n_links && rc == 0; i++)
			rc = set_up_device(lab, node, i, e);
	}
	return rc;
}

struct making {
	struct dr_lab lab;
	unsigned mtu;
	struct dr_err *e;
	int rc;
};

static void *make(void *arg)
{
	struct making *m = arg;

	for (unsigned node = 0; node < DR_LAB_NODES && m->rc == 0; node++)
		m->rc = new_netns(&m->lab.netns_fd[node], m->e);
	if (m->rc == 0 && m->lab.n_links)
		m->rc = set_up_links(&m->lab, m->mtu, m->e);
	return NULL;
}

/* n_links 0: the namespaces alone. */
static int make_in_thread(unsigned n_links, unsigned mtu, struct dr_lab *out, struct dr_err *e)
{
	struct making m = { { { -1, -1 }, n_links }, mtu ? mtu : DR_LAB_MTU, e, 0 };
	pthread_t thread;
	int rc = -pthread_create(&thread, NULL, make, &m);

	if (rc)
		return explain(e, rc, "start a thread");
	pthread_join(thread, NULL);
	*out = m.lab;
	if (m.rc)
		dr_lab_destroy(out);
	return m.rc;
}

int dr_lab_create(unsigned n_links, unsigned mtu, struct dr_lab *out, struct dr_err *e)
{
	if (n_links < 1 || n_links > DR_LAB_LINKS_MAX)
		return dr_err_set(e, -EINVAL, "lab: %u links: the range is 1 to %d", n_links,
			DR_LAB_LINKS_MAX);
	return make_in_thread(n_links, mtu, out, e);
}

void dr_lab_destroy(struct dr_lab *lab)
{
	for (unsigned node = 0; node < DR_LAB_NODES; node++) {
		if (lab->netns_fd[node] >= 0)
			close(lab->netns_fd[node]);
		lab->netns_fd[node] = -1;
	}
}

int dr_lab_supported(struct dr_err *e)
{
	struct dr_lab lab;
	int rc = make_in_thread(0, 0, &lab, e);

	if (rc == 0)
		dr_lab_destroy(&lab);
	return rc;
}

int dr_lab_enter(const struct dr_lab *lab, unsigned node, struct dr_err *e)
{
	dr_assert(node < DR_LAB_NODES);
	if (setns(lab->netns_fd[node], CLONE_NEWNET) < 0)
		return explain(e, -errno, "enter a namespace");
	return 0;
}

pid_t dr_lab_run(
	const struct dr_lab *lab, unsigned node, int (*fn)(void *arg), void *arg, struct dr_err *e)
{
	pid_t parent = getpid();
	struct dr_err why;

	fflush(NULL); /* otherwise both processes would write buffered output */
	pid_t pid = fork();
	if (pid < 0)
		return explain(e, -errno, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	if (lab && dr_lab_enter(lab, node, &why) < 0) {
		dprintf(STDERR_FILENO, "%s\n", why.text);
		_exit(126);
	}
	int status = fn(arg);
	fflush(NULL);
	_exit(status);
}
