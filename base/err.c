/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

/* Both functions format into a text of their own first: an argument may point into e->text. */

int dr_err_set(struct dr_err *e, int code, const char *fmt, ...)
{
	char text[sizeof(e->text)];
	int saved = errno;
	va_list ap;

	if (!e)
		return code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e->code = code;
	/* It may quote a name of any bytes, and be cut within a character. */
	dr_text_copy(e->text, sizeof(e->text), text);
	errno = saved;
	return code;
}

int dr_err_prefix(struct dr_err *e, const char *fmt, ...)
{
	char text[sizeof(e->text)];
	int saved = errno;
	va_list ap;

	if (!e)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	strncat(text, ": ", sizeof(text) - 1 - strlen(text));
	size_t len = strlen(text);
	size_t rest = DR_MIN(strlen(e->text), sizeof(text) - 1 - len);
	memmove(e->text + len, e->text, rest);
	memcpy(e->text, text, len);
	e->text[len + rest] = '\0';
	dr_text_copy(e->text, sizeof(e->text), e->text);
	errno = saved;
	return e->code;
}

const char *dr_errno_name(int err)
{
	if (err < 0)
		err = err == INT32_MIN ? 0 : -err;
	const char *name = err ? strerrorname_np(err) : NULL;
	return name ? name : "E?";
}
