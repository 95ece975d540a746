/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_TEXT_H
#define DR_BASE_TEXT_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Text of a peer, a file or a device may end on a terminal, in a log, in JSON, CSV or Prometheus. Clean text is valid UTF-8
 * (RFC 3629) without characters that act instead of showing: controls (C0, DEL, C1: escape sequences, newlines), controls
 * of direction and joining (forged order), invisible ones, line and paragraph separators, tags, noncharacters.
 *
 * Bytes of a peer are cleaned where they enter: dr_conv_json_parse, the hello (bootstrap/), so that no later code has to.
 */

/* Bytes of the character at s, of which len > 0 are there: 1 for a byte that is not part of valid UTF-8. */
size_t dr_text_char(const char *s, size_t len, bool *clean);
bool dr_text_is_clean(const char *s, size_t len);
/* Copies with '?' for each character or byte that is not clean, and cuts before a character that does not fit into size
 * bytes with the terminating 0. Returns the length. `to` may be `from`. */
size_t dr_text_clean(char *to, size_t size, const char *from, size_t len);
/* The same of a string. */
size_t dr_text_copy(char *to, size_t size, const char *from);

#endif
