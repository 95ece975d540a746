/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where state files live and who may touch one. Invariants:
 * 1. A directory counts only when it is ours (owner, not writable for others, no symbolic link).
 * 2. Who holds the flock of a file that still has a name owns the fault; everybody else keeps off.
 * 3. A file is read only under its lock and unlinked only under its lock.
 */
#include "orchestrator/fault/state.h"

#include "base/mem.h"
#include "orchestrator/fault/state_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRS_MAX = 3, PATH_LEN = 256 };

struct dr_state_file {
	int dir_fd, fd;
	char name[160];
};

/* The standard places, best first. All of root's processes agree on one, whatever their session. */
static unsigned candidates(const char *dir, char out[DIRS_MAX][PATH_LEN])
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	unsigned n = 0;

	if (dir) {
		snprintf(out[0], PATH_LEN, "%s", dir);
		return 1;
	}
	if (geteuid() == 0)
		snprintf(out[n++], PATH_LEN, "/run/dualrail");
	if (run && run[0] == '/')
		snprintf(out[n++], PATH_LEN, "%s/dualrail", run);
	snprintf(out[n++], PATH_LEN, "/tmp/dualrail-%ld", (long)geteuid());
	return n;
}

/* A descriptor of the directory, or -errno when it is not there or not only ours. */
static int open_dir(const char *path, bool make)
{
	struct stat st;
	int fd;

	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

static int read_all(int fd, uint8_t **out, size_t *out_len)
{
	struct stat st;
	uint8_t *p;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_size > DR_STATE_BYTES_MAX)
		return -EPROTO;
	p = dr_calloc(1, (size_t)st.st_size + 1);
	if (!p)
		return -ENOMEM;
	n = pread(fd, p, (size_t)st.st_size, 0);
	if (n != st.st_size) {
		dr_free(p);
		return -EPROTO;
	}
	*out = p;
	*out_len = (size_t)n;
	return 0;
}

static bool same_place(const struct dr_state_where *a, const struct dr_state_where *b)
{
	return !strcmp(a->boot, b->boot) && a->netns == b->netns && a->cookie == b->cookie;
}

/* Read the locked file: 0 and *s when it holds a fault of here; -EPROTO when it is void. */
static int load(int fd, const struct dr_state_where *here, struct dr_state *s, pid_t *pid)
{
	struct dr_state_where w;
	size_t len = 0;
	uint8_t *p = NULL;
	int rc = read_all(fd, &p, &len);

	if (rc < 0)
		return rc;
	rc = dr_state_decode(p, len, s, &w, pid);
	dr_free(p);
	if (rc == 0 && !same_place(&w, here)) {
		dr_state_fini(s);
		rc = -EPROTO;
	}
	return rc;
}

/* Lock an open file that still has its name. -EBUSY: somebody has it; -ESTALE: it was removed. */
static int lock_file(int fd)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return fstat(fd, &st) < 0 || st.st_nlink == 0 ? -ESTALE : 0;
}

/* The file is there already: 0 when it was void and is gone now, so that create may try again. */
static int clear_old(int dir_fd, const char *name, const struct dr_state_where *here,
	const char *key, struct dr_err *e)
{
	int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC), rc;
	struct dr_state s;
	pid_t pid = 0;

	if (fd < 0)
		return errno == ENOENT
			       ? 0
			       : dr_err_set(e, -errno, "open %s: %s", name, strerror(errno));
	rc = lock_file(fd);
	if (rc == -EBUSY)
		dr_err_set(
			e, rc, "%s has a fault of another dualrail already; wait for its end", key);
	if (rc == 0) {
		rc = load(fd, here, &s, &pid);
		if (rc == 0) {
			dr_state_fini(&s);
			rc = dr_err_set(e, -EBUSY,
				"%s: a killed dualrail (guard %ld) left a fault on it; repair it with "
				"`dualrail doctor`",
				key, (long)pid);
		} else if (rc == -EPROTO) {
			rc = unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
		}
	}
	close(fd);
	return rc == -ESTALE ? 0 : rc;
}

static int write_all(int fd, const uint8_t *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* Make the file and lock it; the name may vanish in between, for to others it looks torn. */
static int make(struct dr_state_file *f, const struct dr_state_where *here, const char *key,
	struct dr_err *e)
{
	int rc = -EBUSY;

	for (int tries = 0; tries < 10; tries++) {
		f->fd = openat(f->dir_fd, f->name,
			O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (f->fd >= 0) {
			rc = lock_file(f->fd);
			if (rc == 0)
				return 0;
			close(f->fd);
			continue;
		}
		if (errno != EEXIST)
			return dr_err_set(e, -errno, "create the state file %s: %s", f->name,
				strerror(errno));
		rc = clear_old(f->dir_fd, f->name, here, key, e);
		if (rc < 0)
			return rc;
	}
	return dr_err_set(e, -EBUSY, "create the state file %s: others keep removing it", f->name);
}

int dr_state_create(const char *dir, const char *key, const struct dr_state *s,
	struct dr_state_file **out, struct dr_err *e)
{
	char dirs[DIRS_MAX][PATH_LEN];
	unsigned n = candidates(dir, dirs);
	struct dr_state_where here;
	struct dr_state_file *f;
	uint8_t *p = NULL;
	size_t len = 0;
	int rc = dr_state_where(&here, e);

	if (rc < 0)
		return rc;
	f = dr_calloc(1, sizeof(*f));
	if (!f || (rc = dr_state_encode(s, &here, &p, &len)) < 0) {
		dr_free(f);
		return dr_err_set(e, f ? rc : -ENOMEM, "record the fault on %s: %s", key,
			strerror(f ? -rc : ENOMEM));
	}
	f->dir_fd = -ENOENT;
	for (unsigned i = 0; i < n && f->dir_fd < 0; i++)
		f->dir_fd = open_dir(dirs[i], true);
	snprintf(f->name, sizeof(f->name), "fault-%llu-%s-%s", (unsigned long long)here.netns,
		here.boot, key);
	if (f->dir_fd < 0)
		rc = dr_err_set(e, f->dir_fd,
			"record the fault on %s: no directory of our own for state files (tried %s%s%s)",
			key, dirs[0], n > 1 ? " ... " : "", n > 1 ? dirs[n - 1] : "");
	else
		rc = make(f, &here, key, e);
	if (rc == 0) {
		rc = write_all(f->fd, p, len);
		if (rc == 0)
			rc = fsync(f->dir_fd) < 0 ? -errno : 0;
		if (rc < 0) {
			dr_err_set(e, rc, "write the state file %s: %s", f->name, strerror(-rc));
			unlinkat(f->dir_fd, f->name, 0);
			close(f->fd);
		}
	}
	dr_free(p);
	if (rc < 0) {
		if (f->dir_fd >= 0)
			close(f->dir_fd);
		dr_free(f);
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
	close(f->fd);
	close(f->dir_fd);
	dr_free(f);
}

/* One file of a directory. Returns 1 when fn undid it. */
static int visit(int dir_fd, const char *dir, const char *name, const struct dr_state_where *here,
	int (*fn)(const struct dr_state *s, const char *path, void *arg), void *arg)
{
	int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC), rc;
	char path[2 * PATH_LEN];
	struct dr_state s;
	pid_t pid;

	if (fd < 0)
		return 0;
	rc = lock_file(fd);
	if (rc == 0) {
		rc = load(fd, here, &s, &pid);
		if (rc == -EPROTO) {
			unlinkat(dir_fd, name, 0);
		} else if (rc == 0) {
			snprintf(path, sizeof(path), "%.255s/%.255s", dir, name);
			rc = fn(&s, path, arg);
			if (rc == 0)
				unlinkat(dir_fd, name, 0);
			dr_state_fini(&s);
		}
	}
	close(fd);
	return rc == 0;
}

/* "fault-<netns>-<boot>-<key>": is it to be looked at from here? Other namespaces' files are theirs,
 * but those of another boot are nobody's. */
static bool concerns(const char *name, const struct dr_state_where *here)
{
	unsigned long long netns;
	char boot[DR_STATE_BOOT_LEN + 1];

	if (sscanf(name, "fault-%llu-%36[0-9a-f-]-", &netns, boot) != 2)
		return false;
	return netns == here->netns || strcmp(boot, here->boot) != 0;
}

int dr_state_each(const char *dir, int (*fn)(const struct dr_state *s, const char *path, void *arg),
	void *arg)
{
	char dirs[DIRS_MAX][PATH_LEN];
	unsigned n = candidates(dir, dirs);
	struct dr_state_where here;
	int done = 0;

	if (dr_state_where(&here, NULL) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		int fd = open_dir(dirs[i], false);
		const struct dirent *de;
		DIR *d;

		if (fd < 0)
			continue;
		d = fdopendir(fd);
		if (!d) {
			close(fd);
			continue;
		}
		while ((de = readdir(d)) != NULL) {
			if (concerns(de->d_name, &here))
				done += visit(fd, dirs[i], de->d_name, &here, fn, arg);
		}
		closedir(d);
	}
	return done;
}
