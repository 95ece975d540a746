/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_SYSFILE_H
#define DR_BASE_SYSFILE_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Reads files of /proc, /sys and /boot. A path is `root`, which is "" for this machine and a tree of fixtures in tests,
 * then the text of fmt. A path that does not fit into the buffers is treated as a missing file.
 */
enum { DR_SYSFILE_PATH_MAX = 512 };

/* The path below root; false: too long. */
bool dr_sysfile_path(char *buf, size_t len, const char *root, const char *fmt, ...) DR_PRINTF(4, 5);
/* The first len - 1 bytes of the file, up to the first NUL and without trailing white space. Returns the length,
 * or -errno with buf "". */
int dr_sysfile_text(char *buf, size_t len, const char *root, const char *fmt, ...) DR_PRINTF(4, 5);
/* The last component of a symbolic link's target. Returns the length, or -errno with buf "". */
int dr_sysfile_link(char *buf, size_t len, const char *root, const char *fmt, ...) DR_PRINTF(4, 5);
/* The first word of the file as a number; false: it is none. */
bool dr_sysfile_number(int64_t *out, const char *root, const char *fmt, ...) DR_PRINTF(3, 4);
bool dr_sysfile_has(const char *root, const char *fmt, ...) DR_PRINTF(2, 3);

/* Calls fn for each entry of a directory, "eth2" before "eth10", without those that begin with '.', until it
 * returns another value than 0. Returns that value, or 0. A directory that cannot be read is empty. */
typedef int (*dr_sysfile_fn)(const char *name, void *arg);
int dr_sysfile_each(const char *root, const char *dir, dr_sysfile_fn fn, void *arg);

#endif
