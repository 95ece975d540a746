/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_FILE_H
#define DR_BASE_FILE_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Every file that the program or the plugin writes, and every file that an option names to be read.
 * Other users of a shared directory may have placed something under the name. Nothing of theirs is
 * opened, followed or copied:
 *
 * target               written                                  read
 * nothing              a new file, 0666 & ~umask                -ENOENT
 * own regular file     a new file replaces it, mode & 0777      yes
 * symbolic link        refused                                  followed if it belongs to this user or root
 * file of root         refused, unless this user is root        yes
 * file of another user refused                                  refused
 * FIFO, char device    in place, if of this user or root        refused
 * block device, socket refused                                  refused
 * own descriptor       to the descriptor                        from a regular file or a pipe
 *
 * "This user" is the effective one. An own descriptor is /dev/stdin, /dev/stdout, /dev/stderr, /dev/fd/N or /proc/self/fd/N:
 * whoever started the process opened it. A new file is made beside the target (O_EXCL) in the directory, which is opened
 * once, and renamed; a directory that takes no new file, over an own file that can be written (a bind mount), makes it
 * written in place. Symbolic links in the directory's own path are followed. A refusal is -EPERM.
 */
enum { DR_FILE_SYNC = 1 }; /* on disk before it gets its name */

/* Could it be written? Leaves nothing behind, makes no empty file. `option` ("--json") precedes the path in errors. -errno. */
int dr_file_probe(const char *option, const char *path, struct dr_err *e) DR_MUST_CHECK;
/* The whole text is there under its name, or -errno and the target is as it was (in place: cut). */
int dr_file_write(const char *option, const char *path, const char *text, size_t len,
	unsigned flags, struct dr_err *e) DR_MUST_CHECK;
/* The number of an own descriptor that path names, or -1. */
int dr_file_descriptor(const char *path);
/* Opens for reading; the caller closes. -errno: e->text is the reason and the next step, without the path. */
int dr_file_open(const char *path, struct dr_err *e) DR_MUST_CHECK;
/* Up to len bytes from the beginning of what dr_file_open returned. The number, or -errno. */
ssize_t dr_file_read(int fd, void *buf, size_t len) DR_MUST_CHECK;
/* The whole file, a 0 behind it, for dr_free; len may be NULL. -EFBIG: more than max bytes. Others:
 * as dr_file_open. */
int dr_file_text(const char *path, size_t max, char **out, size_t *len, struct dr_err *e)
	DR_MUST_CHECK;

#endif
