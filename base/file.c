/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants
 *  1. A name is looked up in a directory that is held open, and never followed: O_NOFOLLOW, AT_SYMLINK_NOFOLLOW, renameat.
 *  2. What was looked at is what was opened: same device, inode and owner, or the file is refused.
 *  3. Nothing is truncated before 2 holds.
 *  4. A new file has the mode of open(2), or the permission bits of an own regular file; never setuid, setgid or sticky.
 */
#include "base/file.h"

#include "base/mem.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 8, REASON_MAX = 160, REFUSED = -EPERM };

/* Why a target is not used; "": errno says it. */
struct reason {
	char text[REASON_MAX];
};

static int DR_PRINTF(2, 3) refuse(struct reason *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return REFUSED;
}

static const char *hint_of(int err)
{
	return err == ENOENT || err == ENOTDIR ? "; create the directory first"
	       : err == ENOSPC		       ? "; free some space"
	       : err == EISDIR		       ? "; name a file in it"
	       : err == EACCES || err == EPERM || err == EROFS
		       ? "; choose a directory that you may write to"
		       : "";
}

static int cannot(
	struct dr_err *e, const char *option, const char *path, int rc, const struct reason *why)
{
	char text[REASON_MAX + 64];

	snprintf(text, sizeof(text), "%s%s",
		why->text[0]	? why->text
		: rc == -ENOMEM ? "out of memory"
				: strerror(-rc),
		why->text[0] ? "" : hint_of(-rc));
	/* Of a long path the end, so that the reason is there. */
	size_t used = strlen("cannot write =: ...") + strlen(option) + strlen(text) + 1;
	size_t room = used < sizeof(e->text) ? sizeof(e->text) - used : 0, len = strlen(path);
	bool cut = len > room;

	return dr_err_set(e, rc, "cannot write %s=%s%s: %s", option, cut ? "..." : "",
		path + (cut ? len - room : 0), text);
}

int dr_file_descriptor(const char *path)
{
	static const char *const name[] = { "/dev/stdin", "/dev/stdout", "/dev/stderr" };
	static const char *const dir[] = { "/dev/fd/", "/proc/self/fd/" };
	char *end;

	for (int i = 0; i < (int)DR_ARRAY_LEN(name); i++)
		if (!strcmp(path, name[i]))
			return i;
	for (size_t i = 0; i < DR_ARRAY_LEN(dir); i++) {
		const char *digits = path + strlen(dir[i]);

		if (strncmp(path, dir[i], strlen(dir[i])) || *digits < '0' || *digits > '9')
			continue;
		long n = strtol(digits, &end, 10);
		if (!*end && n <= INT_MAX)
			return (int)n;
	}
	return -1;
}

/* The descriptor once more, open for `want` (O_RDONLY, O_WRONLY). */
static int descriptor_dup(int n, int want)
{
	int flags = fcntl(n, F_GETFL);

	if (flags >= 0 && (flags & O_ACCMODE) != want && (flags & O_ACCMODE) != O_RDWR)
		return -EBADF;
	int fd = flags < 0 ? -1 : fcntl(n, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

/* The directory of path and the name in it. -EISDIR: path ends in a slash. */
static int dir_open(const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];

	*name = slash ? slash + 1 : path;
	if (!**name)
		return -EISDIR;
	int n = slash ? snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path) + 1, path)
		      : snprintf(dir, sizeof(dir), ".");
	if (n >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fd;
}

/* What was looked at is opened. */
static int open_same(int dir_fd, const char *name, int flags, const struct stat *seen)
{
	struct stat st;
	int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && st.st_dev == seen->st_dev && st.st_ino == seen->st_ino &&
		st.st_uid == seen->st_uid && (st.st_mode & S_IFMT) == (seen->st_mode & S_IFMT))
		return fd;
	close(fd);
	return -ESTALE;
}

/* ---- writing ---- */

/* A target: a file beside it (temp) that replaces it, or something that is written in place. */
struct target {
	const char *name; /* in dir_fd */
	int dir_fd, fd;
	char *temp;
	struct stat st; /* of what is there; st_mode 0: nothing */
};

static void target_end(struct target *t)
{
	if (t->fd >= 0)
		close(t->fd);
	if (t->temp)
		unlinkat(t->dir_fd, t->temp, 0);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
	dr_free(t->temp);
}

/* May what is there be written or replaced? */
static int judge(const struct stat *st, struct reason *why)
{
	uid_t self = geteuid();
	bool stream = S_ISFIFO(st->st_mode) || S_ISCHR(st->st_mode);

	if (S_ISDIR(st->st_mode))
		return -EISDIR;
	if (S_ISLNK(st->st_mode))
		return refuse(why,
			"it is a symbolic link; name the file that it points to, or remove the link");
	if (!S_ISREG(st->st_mode) && !stream)
		return refuse(why, "it is not a regular file; name another file");
	if (st->st_uid != self && !(stream && st->st_uid == 0))
		return refuse(why,
			"it belongs to user %u, this process runs as user %u; remove it or name another file",
			(unsigned)st->st_uid, (unsigned)self);
	return 0;
}

/* A new file, hidden and not ending in the target's suffix, so that node_exporter, which reads *.prom, never takes it. */
static int temp_open(struct target *t)
{
	size_t size = strlen(t->name) + 16;
	int rc = -EEXIST;
	uint64_t r;

	t->temp = dr_calloc(1, size);
	if (!t->temp)
		return -ENOMEM;
	for (int tries = 0; rc == -EEXIST && tries < 16; tries++) {
		if (dr_random_bytes(&r, sizeof(r)))
			r = (uint64_t)getpid() + (uint64_t)tries;
		snprintf(t->temp, size, ".%s.%08" PRIx32, t->name, (uint32_t)r);
		t->fd = openat(t->dir_fd, t->temp,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
		if (t->fd >= 0)
			return 0;
		rc = -errno;
	}
	dr_free(t->temp);
	t->temp = NULL;
	return rc;
}

/* The directory takes no new file, but the own file itself is writable and has no other name: write it in place. */
static bool in_place_helps(int rc, const struct target *t)
{
	return (rc == -EACCES || rc == -EPERM || rc == -EROFS) && S_ISREG(t->st.st_mode) &&
	       t->st.st_nlink == 1;
}

/* Looks at the target and makes the file beside it, if it gets one. */
static int target_begin(struct target *t, const char *path, struct reason *why)
{
	int n = dr_file_descriptor(path), rc = 0;

	if (n >= 0) {
		t->fd = descriptor_dup(n, O_WRONLY);
		return DR_MIN(t->fd, 0);
	}
	t->dir_fd = dir_open(path, &t->name);
	if (t->dir_fd < 0)
		return t->dir_fd;
	if (fstatat(t->dir_fd, t->name, &t->st, AT_SYMLINK_NOFOLLOW) == 0) {
		rc = judge(&t->st, why);
		if (!rc && faccessat(t->dir_fd, t->name, W_OK, AT_EACCESS))
			rc = -errno;
	} else {
		t->st.st_mode = 0;
		rc = errno == ENOENT ? 0 : -errno;
	}
	if (rc || (t->st.st_mode && !S_ISREG(t->st.st_mode)))
		return rc;
	rc = temp_open(t);
	return in_place_helps(rc, t) ? 0 : rc;
}

static int begin(struct target *t, const char *option, const char *path, struct dr_err *e)
{
	struct reason why = { "" };

	*t = (struct target){ .dir_fd = -1, .fd = -1 };
	if (!*path)
		return dr_err_set(e, -EINVAL, "%s=: no file name", option);
	int rc = target_begin(t, path, &why);
	if (!rc)
		return 0;
	target_end(t);
	return cannot(e, option, path, rc, &why);
}

int dr_file_probe(const char *option, const char *path, struct dr_err *e)
{
	struct target t;
	int rc = begin(&t, option, path, e);

	if (!rc)
		target_end(&t);
	return rc;
}

/* Opens what is written in place. A FIFO waits for its reader. */
static int in_place_open(struct target *t)
{
	t->fd = open_same(t->dir_fd, t->name, O_WRONLY, &t->st);
	if (t->fd >= 0 && S_ISREG(t->st.st_mode) && ftruncate(t->fd, 0))
		return -errno;
	return DR_MIN(t->fd, 0);
}

static int put(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO;
		text += DR_MAX(n, 0);
		len -= (size_t)DR_MAX(n, 0);
	}
	return 0;
}

static int put_all(struct target *t, const char *text, size_t len, unsigned flags)
{
	int rc = t->fd < 0 ? in_place_open(t) : 0;

	if (!rc)
		rc = put(t->fd, text, len);
	if (!rc && t->temp && t->st.st_mode && fchmod(t->fd, t->st.st_mode & 0777))
		rc = -errno;
	/* A pipe or a terminal knows no fsync: EINVAL, EROFS. */
	if (!rc && (flags & DR_FILE_SYNC) && fsync(t->fd) && errno != EINVAL && errno != EROFS &&
		errno != ENOTSUP)
		rc = -errno;
	if (t->fd >= 0 && close(t->fd) && !rc)
		rc = -errno;
	t->fd = -1;
	return rc;
}

int dr_file_write(const char *option, const char *path, const char *text, size_t len,
	unsigned flags, struct dr_err *e)
{
	struct target t;
	int rc = begin(&t, option, path, e);

	if (rc)
		return rc;
	rc = put_all(&t, text, len, flags);
	if (!rc && t.temp) {
		if (renameat(t.dir_fd, t.temp, t.dir_fd, t.name)) {
			rc = -errno;
		} else {
			dr_free(t.temp);
			t.temp = NULL;
		}
	}
	target_end(&t);
	return rc ? cannot(e, option, path, rc, &(struct reason){ "" }) : 0;
}

/* ---- reading ---- */

static int refuse_owner(struct reason *why, const char *what, const struct stat *st)
{
	return refuse(why,
		"%s belongs to user %u, this process runs as user %u; copy the file, or change its owner",
		what, (unsigned)st->st_uid, (unsigned)geteuid());
}

static bool trusted(const struct stat *st)
{
	return st->st_uid == geteuid() || st->st_uid == 0;
}

/* The target of the link `name`, relative to the directory of `path`, replaces path: -EAGAIN. */
static int link_target(int dir_fd, const char *name, char path[PATH_MAX])
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, to, sizeof(to) - 1);
	size_t keep = strlen(path) - strlen(name);

	if (n < 0)
		return -errno;
	to[n] = '\0';
	if (to[0] == '/')
		keep = 0;
	if (keep + (size_t)n >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path + keep, to, (size_t)n + 1);
	return -EAGAIN;
}

/* One name on the way: a descriptor; -EAGAIN: it was a link, and path is its target. */
static int open_step(char path[PATH_MAX], struct reason *why)
{
	const char *name;
	struct stat st;
	int rc, dir_fd = dir_open(path, &name);

	if (dir_fd < 0)
		return dir_fd;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		rc = -errno;
	else if (S_ISLNK(st.st_mode) && !trusted(&st))
		rc = refuse_owner(why, "the symbolic link", &st);
	else if (S_ISLNK(st.st_mode))
		rc = link_target(dir_fd, name, path);
	else if (!S_ISREG(st.st_mode))
		rc = refuse(why,
			"it is not a regular file; copy it into one, or pass it as /dev/stdin or /dev/fd/N");
	else if (!trusted(&st))
		rc = refuse_owner(why, "it", &st);
	else /* O_NONBLOCK: should a FIFO have taken its place */
		rc = open_same(dir_fd, name, O_RDONLY | O_NONBLOCK, &st);
	close(dir_fd);
	return rc;
}

static int open_named(const char *path, struct reason *why)
{
	char at[PATH_MAX];
	int rc = -EAGAIN;

	if (snprintf(at, sizeof(at), "%s", path) >= (int)sizeof(at))
		return -ENAMETOOLONG;
	for (int links = 0; rc == -EAGAIN; links++)
		rc = links > LINKS_MAX ? -ELOOP : open_step(at, why);
	return rc;
}

static int open_descriptor(int n, struct reason *why)
{
	struct stat st;
	int fd = descriptor_dup(n, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) || S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode))
		return fd;
	close(fd);
	return refuse(why, "it is neither a regular file nor a pipe; copy it into a file");
}

int dr_file_open(const char *path, struct dr_err *e)
{
	struct reason why = { "" };
	int n = dr_file_descriptor(path);
	int fd = n >= 0 ? open_descriptor(n, &why) : open_named(path, &why);

	return fd >= 0 ? fd : dr_err_set(e, fd, "%s", why.text[0] ? why.text : strerror(-fd));
}

ssize_t dr_file_read(int fd, void *buf, size_t len)
{
	uint8_t *p = buf;
	size_t got = 0;
	ssize_t n = 1;

	while (got < len && n > 0) {
		/* A descriptor that was passed may be anywhere in its file; a pipe has no place. */
		n = pread(fd, p + got, len - got, (off_t)got);
		if (n < 0 && errno == ESPIPE)
			n = read(fd, p + got, len - got);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			got += (size_t)n;
	}
	return n < 0 ? -errno : (ssize_t)got;
}

int dr_file_text(const char *path, size_t max, char **out, size_t *len, struct dr_err *e)
{
	struct stat st;
	int fd = dr_file_open(path, e);

	if (fd < 0)
		return fd;
	/* A pipe has no length. One byte more than allowed shows that there are more. */
	bool known = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size <= max;
	size_t size = known ? (size_t)st.st_size : max + 1;
	char *text = dr_calloc(1, size + 1);
	ssize_t n = text ? dr_file_read(fd, text, size) : -ENOMEM;

	close(fd);
	if (n >= 0 && (size_t)n <= max) {
		*out = text;
		if (len)
			*len = (size_t)n;
		return 0;
	}
	dr_free(text);
	return n < 0 ? dr_err_set(e, (int)n, "%s", strerror((int)-n))
		     : dr_err_set(e, -EFBIG, "it is larger than %zu MiB; name another file",
			       max >> 20);
}
