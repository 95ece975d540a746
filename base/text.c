/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <string.h>

/* Valid UTF-8 at s: its length, and the code point; 0: not valid. */
static size_t decode(const unsigned char *s, size_t n, uint32_t *out)
{
	size_t len = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;

	*out = s[0];
	if (len == 1)
		return 1;
	if (len > n || s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	uint32_t c = s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	*out = c;
	if ((len == 3 && c < 0x800) || (len == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return c >= 0xd800 && c <= 0xdfff ? 0 : len;
}

/* Unicode 15: categories Cc, Cf, Zl and Zp, and noncharacters. Cf of scripts that show something are left out. */
static bool shows(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{ 0x00, 0x1f }, { 0x7f, 0x9f },		/* controls */
		{ 0xad, 0xad },				/* soft hyphen */
		{ 0x61c, 0x61c },			/* Arabic letter mark */
		{ 0x115f, 0x1160 }, { 0x180b, 0x180f }, /* fillers, Mongolian selectors */
		{ 0x200b, 0x200f },			/* zero width, marks of direction */
		{ 0x2028, 0x202e },			/* separators, embeddings and overrides */
		{ 0x2060, 0x206f },			/* joiner, isolates */
		{ 0x3164, 0x3164 }, { 0xfdd0, 0xfdef }, /* filler, noncharacters */
		{ 0xfeff, 0xfeff }, { 0xfff0, 0xfffb }, /* byte order mark, annotations */
		{ 0xe0000, 0xe0fff },			/* tags, selectors */
	};

	if ((c & 0xfffe) == 0xfffe)
		return false;
	for (size_t i = 0; i < DR_ARRAY_LEN(hidden); i++)
		if (c >= hidden[i].first && c <= hidden[i].last)
			return false;
	return true;
}

size_t dr_text_char(const char *s, size_t len, bool *clean)
{
	uint32_t c;
	size_t n = decode((const unsigned char *)s, len, &c);

	*clean = n > 0 && shows(c);
	return DR_MAX(n, (size_t)1);
}

bool dr_text_is_clean(const char *s, size_t len)
{
	bool clean = true;

	for (size_t i = 0; i < len && clean;)
		i += dr_text_char(s + i, len - i, &clean);
	return clean;
}

size_t dr_text_clean(char *to, size_t size, const char *from, size_t len)
{
	size_t at = 0, n, put;
	bool clean;

	dr_assert(size > 0);
	for (size_t i = 0; i < len; i += n) {
		n = dr_text_char(from + i, len - i, &clean);
		put = clean ? n : 1;
		if (at + put >= size)
			break;
		if (clean)
			memmove(to + at, from + i, n);
		else
			to[at] = '?';
		at += put;
	}
	to[at] = '\0';
	return at;
}

size_t dr_text_copy(char *to, size_t size, const char *from)
{
	return dr_text_clean(to, size, from, strlen(from));
}
