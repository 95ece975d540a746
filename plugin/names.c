/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/names.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PORT_MAX = 255 };

static int parse_port(const char *text, const char *item, int *out, struct dr_err *e)
{
	uint64_t port;

	if (dr_parse_u64(text, 0, PORT_MAX, &port, NULL) < 0)
		return dr_err_set(e, -EINVAL,
			"\"%.60s\": \"%.20s\" is not a port; use NAME or NAME:PORT with 0 to %d",
			item, text, PORT_MAX);
	*out = (int)port;
	return 0;
}

static int add(struct ha_names *l, const char *item, size_t len, struct dr_err *e)
{
	struct ha_name *name = &l->v[l->n];

	if (len == 0)
		return 0;
	if (l->n == HA_NAMES_MAX)
		return dr_err_set(
			e, -EINVAL, "more than %d names; use a prefix, e.g. eth", HA_NAMES_MAX);
	if (len >= sizeof(name->text))
		return dr_err_set(e, -EINVAL, "\"%.20s...\" is longer than a device name", item);
	memcpy(name->text, item, len);
	name->text[len] = '\0';
	name->port = -1;
	char *colon = strrchr(name->text, ':');
	if (colon) {
		int rc = parse_port(colon + 1, name->text, &name->port, e);

		if (rc < 0)
			return rc;
		*colon = '\0';
	}
	l->n++;
	return 0;
}

int ha_names_parse(const char *text, struct ha_names *out, struct dr_err *e)
{
	struct ha_names l = { .n = 0 };
	const char *s = text;
	int rc = 0;

	l.exclude = *s == '^';
	s += l.exclude;
	l.exact = *s == '=';
	s += l.exact;
	for (size_t len; rc == 0 && *s; s += len + (s[len] == ',')) {
		len = strcspn(s, ",");
		rc = add(&l, s, len, e);
	}
	if (rc == 0 && *text && l.n == 0)
		rc = dr_err_set(e, -EINVAL,
			"\"%.60s\" names no device; write names separated by commas, e.g. eth0,eth1",
			text);
	if (rc == 0)
		*out = l;
	return rc;
}

bool ha_names_listed(const struct ha_names *l, const char *name, int port)
{
	for (unsigned i = 0; i < l->n; i++) {
		const struct ha_name *v = &l->v[i];
		bool same = l->exact ? strcmp(name, v->text) == 0
				     : strncmp(name, v->text, strlen(v->text)) == 0;

		if (same && (v->port < 0 || port < 0 || v->port == port))
			return true;
	}
	return false;
}

bool ha_names_match(const struct ha_names *l, const char *name, int port)
{
	return l->n == 0 || ha_names_listed(l, name, port) != l->exclude;
}

void ha_names_format(const struct ha_names *l, char *buf, size_t len)
{
	snprintf(buf, len, "%s%s", l->n && l->exclude ? "^" : "", l->n && l->exact ? "=" : "");
	for (unsigned i = 0; i < l->n; i++) {
		dr_append(buf, len, "%s%s", i ? "," : "", l->v[i].text);
		if (l->v[i].port >= 0)
			dr_append(buf, len, ":%d", l->v[i].port);
	}
}
