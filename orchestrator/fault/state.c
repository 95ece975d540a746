/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where state files live, what is in them and who may touch one. Invariants:
 * 1. A directory is used only if it belongs to this user, is not writable for others and is no symbolic
 *    link. XDG_RUNTIME_DIR counts only if it belongs to this user: root may have inherited another user's.
 * 2. The process that holds the flock of a file that still has a name owns the fault.
 * 3. A file is unlinked only under its lock. Who reads one without it takes an incomplete one for none.
 * Files are not flushed to disk: a fault does not outlive the boot that is named in its file.
 */
#include "orchestrator/fault/state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sysfile.h"
#include "orchestrator/fault/kind_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

enum { BOOT_LEN = 36, DIRS_MAX = 3, PATH_LEN = 256, TRIES_MAX = 100, BYTES_MAX = 4 << 20 };

/* ---- contents ---- */

/* A file is this header, the text of `undo` with its zero, and the snapshot. One machine writes and reads
 * it, so the struct is stored as it is. */
enum { MAGIC = 0x44524653, VERSION = 3 };
struct header {
	uint64_t sum; /* of everything that follows: detects an incomplete write */
	uint32_t magic, version;
	struct dr_state_where where;
	char kind[DR_FAULT_NAME_MAX], nic[DR_FAULT_NIC_MAX];
	int32_t pid, ifindex;
	uint8_t mac[8];
	uint32_t undo_len, snap_len;
};
_Static_assert(sizeof(struct header) == 192, "no padding");

int dr_state_where(struct dr_state_where *w, struct dr_err *e)
{
	socklen_t len = sizeof(w->cookie);
	struct stat st;

	memset(w, 0, sizeof(*w));
	if (dr_sysfile_text(w->boot, sizeof(w->boot), "", "/proc/sys/kernel/random/boot_id") !=
			BOOT_LEN ||
		stat("/proc/self/ns/net", &st) < 0)
		return dr_err_set(
			e, -ENOENT, "fault state: cannot read boot id or namespace in /proc");
	w->netns = st.st_ino;
	/* Inode numbers of namespaces are reused within a boot, cookies (Linux 5.14) are not. */
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &w->cookie, &len) < 0)
			w->cookie = 0;
		close(fd);
	}
	return 0;
}

static uint64_t checksum(const uint8_t *p, size_t n)
{
	uint64_t h = dr_mix64(n);

	for (size_t i = 0; i < n; i++)
		h = dr_mix64(h ^ p[i]);
	return h;
}

int dr_state_encode(
	const struct dr_state *s, const struct dr_state_where *w, uint8_t **out, size_t *out_len)
{
	const char *undo = s->undo ? s->undo : "";
	size_t undo_len = s->undo ? strlen(undo) + 1 : 0;
	size_t len = sizeof(struct header) + undo_len + s->snap.len;
	struct header h = { .magic = MAGIC,
		.version = VERSION,
		.where = *w,
		.pid = getpid(),
		.ifindex = s->ifindex,
		.undo_len = (uint32_t)undo_len,
		.snap_len = (uint32_t)s->snap.len };
	uint8_t *p = len > BYTES_MAX ? NULL : dr_calloc(1, len);

	if (!p)
		return len > BYTES_MAX ? -EFBIG : -ENOMEM;
	snprintf(h.kind, sizeof(h.kind), "%s", s->kind->name);
	snprintf(h.nic, sizeof(h.nic), "%s", s->nic);
	memcpy(h.mac, s->mac, sizeof(s->mac));
	memcpy(p, &h, sizeof(h));
	memcpy(p + sizeof(h), undo, undo_len);
	if (s->snap.len)
		memcpy(p + sizeof(h) + undo_len, s->snap.bytes, s->snap.len);
	h.sum = checksum(p + sizeof(h.sum), len - sizeof(h.sum));
	memcpy(p, &h.sum, sizeof(h.sum));
	*out = p;
	*out_len = len;
	return 0;
}

/* Is the file complete, and are its texts terminated? */
static bool valid(const struct header *h, const uint8_t *p, size_t len)
{
	return h->magic == MAGIC && h->version == VERSION &&
	       len - sizeof(*h) == (uint64_t)h->undo_len + h->snap_len &&
	       memchr(h->kind, 0, sizeof(h->kind)) && memchr(h->nic, 0, sizeof(h->nic)) &&
	       (!h->undo_len || !p[sizeof(*h) + h->undo_len - 1]) &&
	       h->sum == checksum(p + sizeof(h->sum), len - sizeof(h->sum));
}

/* NULL when n is 0, or without memory. Aligned, which the bytes of a file need not be. */
static void *copy_of(const void *p, size_t n)
{
	void *copy = n ? dr_calloc(1, n) : NULL;

	return copy ? memcpy(copy, p, n) : NULL;
}

int dr_state_decode(
	const uint8_t *p, size_t len, struct dr_state *s, struct dr_state_where *w, pid_t *pid)
{
	const struct dr_kind_fault *on_path;
	struct header h;

	memset(s, 0, sizeof(*s));
	if (len < sizeof(h))
		return -EPROTO;
	memcpy(&h, p, sizeof(h));
	if (!valid(&h, p, len))
		return -EPROTO;
	s->kind = dr_fault_kind_find(h.kind, &on_path);
	if (!s->kind || s->kind->by != DR_FAULT_BY_GUARD)
		return -EPROTO;
	*w = h.where;
	*pid = h.pid;
	s->ifindex = h.ifindex;
	memcpy(s->mac, h.mac, sizeof(s->mac));
	snprintf(s->nic, sizeof(s->nic), "%s", h.nic);
	s->undo = copy_of(p + sizeof(h), h.undo_len);
	s->snap.bytes = copy_of(p + sizeof(h) + h.undo_len, h.snap_len);
	s->snap.len = h.snap_len;
	if ((h.undo_len && !s->undo) || (h.snap_len && !s->snap.bytes)) {
		dr_state_fini(s);
		return -ENOMEM;
	}
	return 0;
}

void dr_state_fini(struct dr_state *s)
{
	dr_free(s->undo);
	s->undo = NULL;
	dr_netdev_snapshot_fini(&s->snap);
}

/* ---- directories and files ---- */

struct dr_state_file {
	int dir_fd, fd;
	char name[160];
};

/* The standard places, best first. All of root's processes agree on one, whatever their session. */
static unsigned candidates(const char *dir, char out[DIRS_MAX][PATH_LEN])
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	unsigned n = 0;

	if (dir) {
		snprintf(out[0], PATH_LEN, "%s", dir);
		return 1;
	}
	if (geteuid() == 0)
		snprintf(out[n++], PATH_LEN, "/run/dualrail");
	if (run && run[0] == '/' && stat(run, &st) == 0 && st.st_uid == geteuid())
		snprintf(out[n++], PATH_LEN, "%s/dualrail", run);
	snprintf(out[n++], PATH_LEN, "/tmp/dualrail-%ld", (long)geteuid());
	return n;
}

/* A descriptor of the directory; -errno: it does not exist, or others may write to it. */
static int open_dir(const char *path, bool make)
{
	struct stat st;

	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* Read the file: 0, *s and *o when it holds a fault of here; -EPROTO when it is invalid. */
static int load(int fd, const struct stat *st, const struct dr_state_where *here,
	struct dr_state *s, struct dr_state_owner *o)
{
	size_t len = (size_t)st->st_size;
	struct dr_state_where w;
	int rc = -EPROTO;

	if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || len > BYTES_MAX)
		return -EPROTO;
	uint8_t *p = dr_calloc(1, len + 1);
	if (!p)
		return -ENOMEM;
	if (pread(fd, p, len, 0) == (ssize_t)len)
		rc = dr_state_decode(p, len, s, &w, &o->guard);
	o->since_ns = st->st_mtim.tv_sec * DR_NS_PER_S + st->st_mtim.tv_nsec;
	dr_free(p);
	if (rc == 0 && memcmp(&w, here, sizeof(w)) != 0) {
		dr_state_fini(s);
		rc = -EPROTO;
	}
	return rc;
}

/* Open, lock and load f->name; f->fd keeps the lock. make: the file is made if there is none, and s->kind
 * is NULL then. -EBUSY: another process has it, which is o->alive; without make *s is loaded all the same if s->kind is
 * set. -ESTALE: it is gone, an invalid one by now. */
static int open_file(struct dr_state_file *f, const struct dr_state_where *here, bool make,
	struct dr_state *s, struct dr_state_owner *o)
{
	struct stat st;
	int rc = 0;

	s->kind = NULL;
	memset(o, 0, sizeof(*o));
	f->fd = openat(
		f->dir_fd, f->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
	if (f->fd < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	if (flock(f->fd, LOCK_EX | LOCK_NB) < 0)
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	else if (fstat(f->fd, &st) < 0 || st.st_nlink == 0)
		rc = -ESTALE;
	else if (!make || st.st_size || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		rc = load(f->fd, &st, here, s, o);
	o->alive = rc == -EBUSY;
	if (o->alive && !make && (fstat(f->fd, &st) < 0 || load(f->fd, &st, here, s, o)))
		s->kind = NULL;
	if (rc == -EPROTO)
		rc = unlinkat(f->dir_fd, f->name, 0) < 0 ? -errno : -ESTALE;
	if (rc < 0) {
		close(f->fd);
		f->fd = -1;
	}
	return rc;
}

/* Another process that looks for files may have a new one locked for a moment, or remove it because it is
 * still empty: then the next try makes it again. */
static int make_file(struct dr_state_file *f, const struct dr_state_where *here, const char *key,
	struct dr_err *e)
{
	int rc = -ESTALE;
	struct dr_state s;
	struct dr_state_owner o;

	for (int tries = 0; tries < TRIES_MAX && (rc == -ESTALE || rc == -EBUSY); tries++)
		rc = open_file(f, here, true, &s, &o);
	if (rc == -EBUSY)
		return dr_err_set(
			e, rc, "%s has a fault of another dualrail already; wait for its end", key);
	if (rc < 0)
		return dr_err_set(e, rc, "open the state file %s: %s", f->name, strerror(-rc));
	if (!s.kind)
		return 0;
	dr_state_fini(&s);
	return dr_err_set(e, -EBUSY,
		"%s: a killed dualrail (guard %ld) left a fault on it; undo it with `dualrail doctor`",
		key, (long)o.guard);
}

/* Open the first usable directory and make the file there. */
static int create_in(struct dr_state_file *f, const char *dir, const struct dr_state_where *here,
	const char *key, struct dr_err *e)
{
	char dirs[DIRS_MAX][PATH_LEN];
	unsigned n = candidates(dir, dirs);

	for (unsigned i = 0; i < n && f->dir_fd < 0; i++)
		f->dir_fd = open_dir(dirs[i], true);
	if (f->dir_fd < 0)
		return dr_err_set(e, f->dir_fd,
			"no directory of this user alone for state files (tried %s%s%s)", dirs[0],
			n > 1 ? " ... " : "", n > 1 ? dirs[n - 1] : "");
	return make_file(f, here, key, e);
}

static int write_state(
	struct dr_state_file *f, const struct dr_state *s, const struct dr_state_where *here)
{
	uint8_t *p = NULL;
	size_t len = 0;
	int rc = dr_state_encode(s, here, &p, &len);
	ssize_t n = rc ? 0 : write(f->fd, p, len);

	if (rc == 0 && n != (ssize_t)len)
		rc = n < 0 ? -errno : -ENOSPC;
	dr_free(p);
	return rc;
}

int dr_state_create(const char *dir, const char *key, const struct dr_state *s,
	struct dr_state_file **out, struct dr_err *e)
{
	struct dr_state_file *f = dr_calloc(1, sizeof(*f));
	struct dr_state_where here;

	if (!f)
		return dr_err_set(e, -ENOMEM, "record the fault on %s: out of memory", key);
	f->fd = f->dir_fd = -1;
	int rc = dr_state_where(&here, e);
	if (rc == 0) {
		snprintf(f->name, sizeof(f->name), "fault-%llu-%s-%s",
			(unsigned long long)here.netns, here.boot, key);
		rc = create_in(f, dir, &here, key, e);
	}
	if (rc < 0) {
		dr_state_leave(f);
		return dr_err_prefix(e, "record the fault on %s", key);
	}
	rc = write_state(f, s, &here);
	if (rc < 0) {
		dr_err_set(e, rc, "write the state file %s: %s", f->name, strerror(-rc));
		dr_state_remove(f);
		return rc;
	}
	*out = f;
	return 0;
}

void dr_state_remove(struct dr_state_file *f)
{
	if (f)
		unlinkat(f->dir_fd, f->name, 0);
	dr_state_leave(f);
}

void dr_state_leave(struct dr_state_file *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	if (f->dir_fd >= 0)
		close(f->dir_fd);
	dr_free(f);
}

/* ---- after a crash ---- */

/* "fault-<netns>-<boot>-<key>": of this namespace, or of another boot and therefore invalid? */
static bool concerns(const char *name, const struct dr_state_where *here)
{
	unsigned long long netns;
	char boot[BOOT_LEN + 1];

	if (sscanf(name, "fault-%llu-%36[0-9a-f-]-", &netns, boot) != 2)
		return false;
	return netns == here->netns || strcmp(boot, here->boot) != 0;
}

struct visitor {
	dr_state_fn fn;
	void *arg;
	struct dr_state_where here;
	const char *dir;
	int dir_fd, done;
};

/* One file of a directory. */
static int visit(const char *name, void *arg)
{
	struct visitor *v = arg;
	struct dr_state_file f = { .dir_fd = v->dir_fd };
	char path[2 * PATH_LEN];
	struct dr_state_owner o;
	struct dr_state s;

	snprintf(f.name, sizeof(f.name), "%.159s", name);
	if (!concerns(name, &v->here))
		return 0;
	int rc = open_file(&f, &v->here, false, &s, &o);
	if (rc < 0 && !(o.alive && s.kind))
		return 0;
	snprintf(path, sizeof(path), "%.255s/%.159s", v->dir, f.name);
	bool undone = v->fn(&s, path, &o, v->arg) == 0;
	if (undone && !o.alive) {
		unlinkat(v->dir_fd, f.name, 0);
		v->done++;
	}
	dr_state_fini(&s);
	if (f.fd >= 0)
		close(f.fd);
	return 0;
}

/* Somebody else's, at the place of a state directory: nothing in it is read. */
static void tell_unusable(const char *dir, int rc)
{
	dr_warn("fault",
		"state directory %s is not used: %s; it must be a directory of user %u that no other user "
		"may write to: check and remove it",
		dir, strerror(-rc), (unsigned)geteuid());
}

int dr_state_each(const char *dir, dr_state_fn fn, void *arg)
{
	struct visitor v = { .fn = fn, .arg = arg };
	char dirs[DIRS_MAX][PATH_LEN];
	unsigned n = candidates(dir, dirs);

	if (dr_state_where(&v.here, NULL) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		v.dir = dirs[i];
		v.dir_fd = open_dir(v.dir, false);
		if (v.dir_fd < 0) {
			if (v.dir_fd != -ENOENT)
				tell_unusable(v.dir, v.dir_fd);
			continue;
		}
		(void)dr_sysfile_each("", v.dir, visit, &v);
		close(v.dir_fd);
	}
	return v.done;
}
