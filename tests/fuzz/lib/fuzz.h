/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FUZZ_H
#define DR_TESTS_FUZZ_H

#include "base/defs.h"
#include "base/err.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/*
 * A fuzz target is one tests/fuzz/X_fuzz.c. It defines the function below, which returns 0 for every
 * input and asserts (dr_assert) what must hold. Linked with libFuzzer by `make fuzz`, and with
 * lib/driver.c, which replays files, by `make check`. No state survives a call: an input alone must
 * show what it found.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input as a stream of choices; 0 when it is used up. */
struct fz {
	const uint8_t *p;
	size_t n;
};

static inline struct fz fz_init(const uint8_t *data, size_t size)
{
	return (struct fz){ data, size };
}

static inline uint8_t fz_u8(struct fz *z)
{
	if (z->n == 0)
		return 0;
	z->n--;
	return *z->p++;
}

static inline uint16_t fz_u16(struct fz *z)
{
	uint16_t hi = fz_u8(z);

	return (uint16_t)(hi << 8 | fz_u8(z));
}

static inline uint32_t fz_u32(struct fz *z)
{
	uint32_t hi = fz_u16(z);

	return hi << 16 | fz_u16(z);
}

/* At most max bytes as a block of exactly that size, so that a read behind it is seen; free it. */
static inline uint8_t *fz_bytes(struct fz *z, size_t max, size_t *len)
{
	uint8_t *p;

	*len = DR_MIN(z->n, max);
	p = calloc(1, *len ? *len : 1);
	dr_assert(p);
	if (*len) {
		memcpy(p, z->p, *len);
		z->p += *len;
	}
	z->n -= *len;
	return p;
}

/* The same as a string that ends at the first 0; free it. */
static inline char *fz_text(struct fz *z, size_t max)
{
	size_t len = DR_MIN(z->n, max), n = len ? strnlen((const char *)z->p, len) : 0;
	char *s = malloc(n + 1);

	dr_assert(s);
	if (n)
		memcpy(s, z->p, n);
	s[n] = 0;
	if (len)
		z->p += len;
	z->n -= len;
	return s;
}

/* A text of a peer shows and does nothing else. Written without base/text.c, which it checks. */
static inline void fz_shows(const char *s)
{
	static const char *const acts[] = {
		"\xc2\xad", "\xd8\x9c",				/* soft hyphen, letter mark */
		"\xe2\x80\x8b", "\xe2\x80\x8e", "\xe2\x80\x8f", /* zero width, marks */
		"\xe2\x80\xa8", "\xe2\x80\xa9",			/* line, paragraph */
		"\xe2\x80\xaa", "\xe2\x80\xad", "\xe2\x80\xae", /* embedding, overrides */
		"\xe2\x81\xa6", "\xe2\x81\xa9", "\xef\xbb\xbf",
		"\xf3\xa0\x81", /* isolates, BOM, tags */
	};
	json_t *utf8 = json_string(s);

	dr_assert(utf8);
	json_decref(utf8);
	for (const unsigned char *p = (const unsigned char *)s; *p; p++)
		dr_assert(*p >= ' ' && *p != 0x7f && !(*p == 0xc2 && p[1] < 0xa0));
	for (size_t i = 0; i < DR_ARRAY_LEN(acts); i++)
		dr_assert(!strstr(s, acts[i]));
}

/* Every text and name of a peer's document. */
static inline void fz_shows_json(const json_t *doc)
{
	json_t *j = (json_t *)(uintptr_t)doc, *v;
	const char *key;
	size_t i;

	if (json_is_string(j))
		fz_shows(json_string_value(j));
	json_object_foreach(j, key, v)
	{
		fz_shows(key);
		fz_shows_json(v);
	}
	json_array_foreach(j, i, v)
	{
		fz_shows_json(v);
	}
}

/* A function that failed says so, with its code and a text. */
static inline void fz_explained(int rc, const struct dr_err *e)
{
	dr_assert(rc < 0);
	dr_assert(e->code == rc);
	dr_assert(e->text[0] && memchr(e->text, 0, sizeof(e->text)));
	fz_shows(e->text);
}

#endif
