/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_MACHINE_H
#define DR_ORCHESTRATOR_DOCTOR_MACHINE_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Files of /proc, /sys and /boot as the checks read them: below `root`, which is "" for this machine
 * and a tree of fixtures in tests. A path that is longer than buffers here is a missing file.
 */
enum { DR_MACHINE_PATH_MAX = 512 };

/* The path itself, below root; false when it is too long. */
bool dr_machine_path(char *buf, size_t len, const char *root, const char *fmt, ...) DR_PRINTF(4, 5);
/* The file's beginning, at most len - 1 bytes and up to the first NUL, without white space at its
 * end; the length, or -errno (buf is "" then). */
int dr_machine_text(char *buf, size_t len, const char *root, const char *fmt, ...) DR_PRINTF(4, 5);
/* The first whitespace-separated word as a number; false when there is none. */
bool dr_machine_number(int64_t *out, const char *root, const char *fmt, ...) DR_PRINTF(3, 4);
bool dr_machine_has(const char *root, const char *fmt, ...) DR_PRINTF(2, 3);

/* The value of "Key:  value" in a text of such lines (/proc/self/status), up to the line's end, into
 * buf; false when the key is not there. */
bool dr_machine_line(const char *text, const char *key, char *buf, size_t len);

#endif
