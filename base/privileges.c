/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants
 *  1. The sets only shrink. What fails leaves fewer rights, never more.
 *  2. capset acts on one thread, so each other thread is made to call it in a signal handler. Whether all did is read from
 *     /proc afterwards: a thread that blocks the signal is named in the error.
 *  3. The filter has no state and looks at the number of the call alone, but for clone and ioctl:
 *     the kernel (5.11) remembers calls that are always allowed and does not run it for them.
 */
#include "base/privileges.h"

#include "base/clock.h"
#include "base/sysfile.h"
#include "base/units.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- capabilities ---- */

struct caps {
	uint64_t effective, permitted, inheritable;
};

static int caps_call(long nr, struct caps *c)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	for (int i = 0; i < 2; i++) {
		d[i].effective = (uint32_t)(c->effective >> (32 * i));
		d[i].permitted = (uint32_t)(c->permitted >> (32 * i));
		d[i].inheritable = (uint32_t)(c->inheritable >> (32 * i));
	}
	if (syscall(nr, &head, d) < 0)
		return -errno;
	c->effective = d[0].effective | (uint64_t)d[1].effective << 32;
	c->permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	c->inheritable = d[0].inheritable | (uint64_t)d[1].inheritable << 32;
	return 0;
}

static struct caps own_caps(void)
{
	struct caps c = { 0 };

	if (caps_call(SYS_capget, &c))
		return (struct caps){ 0 };
	return c;
}

uint64_t dr_privileges_held(void)
{
	return own_caps().permitted;
}

bool dr_privileges_lent(void)
{
	return getauxval(AT_SECURE) && getuid() != 0 && dr_privileges_held();
}

void dr_privileges_suspend(uint64_t caps, bool suspend)
{
	struct caps c = own_caps();

	c.effective = suspend ? c.effective & ~caps : c.effective | (c.permitted & caps);
	(void)caps_call(SYS_capset, &c);
}

/* The calling thread; system calls alone, since it runs in a signal handler too. */
static int keep_own(uint64_t keep)
{
	struct caps c = own_caps();

	/* After a change of the user it is permitted, and not effective. */
	if (c.permitted & ~keep & DR_CAP(CAP_SETPCAP)) {
		c.effective |= DR_CAP(CAP_SETPCAP);
		(void)caps_call(SYS_capset, &c);
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (int i = 0; i <= CAP_LAST_CAP && (c.effective & DR_CAP(CAP_SETPCAP)); i++)
		if (!(keep & DR_CAP(i)))
			prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	c.permitted &= keep;
	c.effective = c.permitted;
	c.inheritable = 0;
	return caps_call(SYS_capset, &c);
}

/* ---- all threads ---- */

static uint64_t others_keep;
static sem_t others_done;

static void on_keep(int signo)
{
	int saved = errno;

	(void)signo;
	(void)keep_own(others_keep);
	sem_post(&others_done);
	errno = saved;
}

/* A file of /proc/self/task/TID/status: the set of this name. */
static uint64_t caps_of(const char *tid, const char *field)
{
	char text[4096], *at;

	if (dr_sysfile_text(text, sizeof(text), "", "/proc/self/task/%s/status", tid) < 0)
		return 0; /* it has ended */
	at = strstr(text, field);
	return at ? strtoull(at + strlen(field), NULL, 16) : 0;
}

struct others {
	uint64_t keep;
	unsigned told;
	char left[128]; /* a thread that has more; "": none */
};

static int tell(const char *tid, void *arg)
{
	struct others *o = arg;
	pid_t id = (pid_t)strtol(tid, NULL, 10);

	if (id != gettid() && caps_of(tid, "CapPrm:") & ~o->keep)
		o->told += syscall(SYS_tgkill, getpid(), id, SIGRTMAX - 1) == 0;
	return 0;
}

static int check(const char *tid, void *arg)
{
	struct others *o = arg;
	char name[32], caps[64];
	uint64_t more = caps_of(tid, "CapPrm:") & ~o->keep;

	if (!more)
		return 0;
	dr_sysfile_text(name, sizeof(name), "", "/proc/self/task/%s/comm", tid);
	dr_privileges_names(more, caps, sizeof(caps));
	snprintf(o->left, sizeof(o->left), "thread %.15s (%.10s) keeps %s", name, tid, caps);
	return 1;
}

/* Waits for those that were told, a second at most. */
static void wait_for_others(unsigned n)
{
	int64_t until = dr_wall_ns() + DR_NS_PER_S;
	struct timespec ts = { .tv_sec = until / DR_NS_PER_S, .tv_nsec = until % DR_NS_PER_S };

	while (n > 0)
		if (sem_timedwait(&others_done, &ts) == 0)
			n--;
		else if (errno != EINTR)
			return;
}

int dr_privileges_limit(uint64_t keep, struct dr_err *e)
{
	struct sigaction act = { .sa_handler = on_keep, .sa_flags = SA_RESTART }, old;
	struct others o = { .keep = keep };
	int rc = keep_own(keep);

	if (rc)
		return dr_err_set(e, rc, "drop capabilities: %s", strerror(-rc));
	others_keep = keep;
	if (sem_init(&others_done, 0, 0) || sigaction(SIGRTMAX - 1, &act, &old))
		return dr_err_set(e, -errno, "drop capabilities of threads: %s", strerror(errno));
	dr_sysfile_each("", "/proc/self/task", tell, &o);
	wait_for_others(o.told);
	dr_sysfile_each("", "/proc/self/task", check, &o);
	/* The handler of a thread that blocks the signal would come too late. */
	act.sa_handler = SIG_IGN;
	sigaction(SIGRTMAX - 1, o.left[0] ? &act : &old, NULL);
	return o.left[0] ? dr_err_set(e, -EBUSY, "drop capabilities: %s", o.left) : 0;
}

/* ---- system calls ---- */

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#endif

/* LeakSanitizer stops the threads of its process by ptrace. */
#if defined(__SANITIZE_ADDRESS__)
#define LEAKS_NEED_PTRACE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_NEED_PTRACE 1
#endif
#endif

#ifdef FILTER_ARCH
/*
 * What no part of the program needs after its start. A list of what is denied, not of what is allowed: the drivers of GPUs and
 * RDMA devices, libc and the sanitizers use other calls with each version, and a run on a cluster must not end because of one.
 */
static const short denied[] = {
	/* programs; CUDA starts nvidia-modprobe when it is opened, which is before */
	SYS_execve, SYS_execveat,
/* other processes */
#ifndef LEAKS_NEED_PTRACE
	SYS_ptrace,
#endif
	SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
#ifdef SYS_pidfd_getfd
	SYS_pidfd_getfd,
#endif
#ifdef SYS_process_madvise
	SYS_process_madvise,
#endif
	/* file systems and namespaces */
	SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns,
#ifdef SYS_open_tree
	SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick,
#endif
#ifdef SYS_mount_setattr
	SYS_mount_setattr,
#endif
	SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_acct, SYS_open_by_handle_at, SYS_fanotify_init,
	/* the kernel */
	SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
	SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_reboot, SYS_syslog, SYS_vhangup,
#ifdef SYS_iopl
	SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
#ifdef SYS_io_uring_setup
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
#endif
	/* keys, names, clocks, personalities */
	SYS_keyctl, SYS_add_key, SYS_request_key, SYS_sethostname, SYS_setdomainname,
	SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_personality
};

#define NEW_NAMESPACES                                                                             \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
		CLONE_NEWPID | CLONE_NEWNET)
#define LOAD(field)                                                                                \
	(struct sock_filter)                                                                       \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define ANSWER(err)                                                                                \
	(struct sock_filter)                                                                       \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)(err)&SECCOMP_RET_DATA))
#define ALLOW (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* The next instruction runs only if the accumulator is, or is not, as said. */
#define IF_EQUAL(k) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(k), 0, 1)
#define UNLESS_EQUAL(k)                                                                            \
	(struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(k), 1, 0)
#define IF_AT_LEAST(k) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(k), 0, 1)
#define IF_ANY(k) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(k), 0, 1)
enum { X32_BIT = 0x40000000, FILTER_MAX = 2 * DR_ARRAY_LEN(denied) + 32 };

/* Returns the number of instructions. */
static unsigned short build_filter(struct sock_filter f[FILTER_MAX])
{
	unsigned short n = 0;

	/* Numbers of another architecture would mean other calls. */
	f[n++] = LOAD(arch);
	f[n++] = UNLESS_EQUAL(FILTER_ARCH);
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	f[n++] = LOAD(nr);
	f[n++] = IF_AT_LEAST(X32_BIT);
	f[n++] = ANSWER(EPERM);
	for (size_t i = 0; i < DR_ARRAY_LEN(denied); i++) {
		f[n++] = IF_EQUAL(denied[i]);
		f[n++] = ANSWER(EPERM);
	}
#ifdef SYS_clone3
	/* Its flags are in memory, out of the filter's sight; libc takes clone then. */
	f[n++] = IF_EQUAL(SYS_clone3);
	f[n++] = ANSWER(ENOSYS);
#endif
	/* Typing into the terminal: its shell runs it, with all rights. */
	f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 6);
	f[n++] = LOAD(args[1]);
	f[n++] = IF_EQUAL(TIOCSTI);
	f[n++] = ANSWER(EPERM);
	f[n++] = IF_EQUAL(TIOCLINUX);
	f[n++] = ANSWER(EPERM);
	f[n++] = ALLOW;
	f[n++] = UNLESS_EQUAL(SYS_clone);
	f[n++] = ALLOW;
	f[n++] = LOAD(args[0]);
	f[n++] = IF_ANY(NEW_NAMESPACES);
	f[n++] = ANSWER(EPERM);
	f[n++] = ALLOW;
	dr_assert(n <= FILTER_MAX);
	return n;
}

static int install_filter(struct dr_err *e)
{
	struct sock_filter code[FILTER_MAX];
	struct sock_fprog prog = { .len = build_filter(code), .filter = code };
	long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);

	if (rc > 0)
		return dr_err_set(
			e, -EBUSY, "filter of system calls: thread %ld has another filter", rc);
	if (rc < 0)
		return dr_err_set(e, errno == ENOSYS || errno == EINVAL ? -EOPNOTSUPP : -errno,
			"filter of system calls: %s", strerror(errno));
	return 0;
}
#else
static int install_filter(struct dr_err *e)
{
	return dr_err_set(e, -EOPNOTSUPP, "filter of system calls: none for this processor");
}
#endif

int dr_privileges_filter(struct dr_err *e)
{
	/* The filter gives it to the other threads, too. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return dr_err_set(e, -errno, "no_new_privs: %s", strerror(errno));
	return install_filter(e);
}

/* ---- another user ---- */

int dr_user_find(const char *name, struct dr_user *out, struct dr_err *e)
{
	char buf[4096], *end;
	struct passwd pw, *found = NULL;

	if (getpwnam_r(name, &pw, buf, sizeof(buf), &found) == 0 && !found && *name) {
		unsigned long uid = strtoul(name, &end, 10);

		if (!*end && *name >= '0' && *name <= '9' && uid < UINT32_MAX)
			(void)getpwuid_r((uid_t)uid, &pw, buf, sizeof(buf), &found);
	}
	if (!found)
		return dr_err_set(e, -ENOENT,
			"\"%.60s\" is no user of this host; `getent passwd` lists them", name);
	snprintf(out->name, sizeof(out->name), "%s", pw.pw_name);
	out->uid = pw.pw_uid;
	out->gid = pw.pw_gid;
	return 0;
}

static bool is_user(const struct dr_user *u)
{
	uid_t r, eff, saved;
	gid_t gr, geff, gsaved;

	return getresuid(&r, &eff, &saved) == 0 && getresgid(&gr, &geff, &gsaved) == 0 &&
	       r == u->uid && eff == u->uid && saved == u->uid && gr == u->gid && geff == u->gid &&
	       gsaved == u->gid;
}

int dr_privileges_become(const struct dr_user *u, uint64_t keep, struct dr_err *e)
{
	int death = 0;

	if (!is_user(u)) {
		/* A change of the user clears it; the demo's server has one. */
		prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
		prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
		if (initgroups(u->name, u->gid) || setresgid(u->gid, u->gid, u->gid) ||
			setresuid(u->uid, u->uid, u->uid))
			return dr_err_set(e, -errno,
				"become user %s: %s; start as root, or without --user", u->name,
				strerror(errno));
		prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
		if (death)
			prctl(PR_SET_PDEATHSIG, death, 0, 0, 0);
	}
	return dr_privileges_limit(keep, e);
}

/* ---- words ---- */

static const char *const cap_names[] = { "chown", "dac_override", "dac_read_search", "fowner",
	"fsetid", "kill", "setgid", "setuid", "setpcap", "linux_immutable", "net_bind_service",
	"net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner", "sys_module", "sys_rawio",
	"sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
	"sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write",
	"audit_control", "setfcap", "mac_override", "mac_admin", "syslog", "wake_alarm",
	"block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore" };

void dr_privileges_names(uint64_t caps, char *buf, size_t len)
{
	const char *sep = "";

	buf[0] = '\0';
	for (size_t i = 0; i < DR_ARRAY_LEN(cap_names); i++)
		if (caps & DR_CAP(i)) {
			dr_append(buf, len, "%s%s", sep, cap_names[i]);
			sep = ", ";
		}
	if (!buf[0])
		snprintf(buf, len, "none");
}

void dr_privileges_describe(char *buf, size_t len)
{
	char caps[512];

	dr_privileges_names(dr_privileges_held(), caps, sizeof(caps));
	snprintf(buf, len, "user %u, capabilities %s%s%s", (unsigned)geteuid(), caps,
		prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? ", no_new_privs" : "",
		prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? ", system call filter" : "");
}
