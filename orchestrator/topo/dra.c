/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/topo/dra.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char group[] = "metadata.resource.k8s.io/";
static const char *const versions[] = { "v1", "v1beta1", "v1alpha1" };
static const char suffix[] = "-metadata.json";

/* ---- a file ---- */

static void copy(const json_t *from, const char *key, char *to, size_t size)
{
	const char *s = json_string_value(json_object_get(from, key));

	dr_text_copy(to, size, s ? s : "");
}

/* {"string": "0000:1b:00.0"} */
static void copy_attribute(const json_t *attributes, const char *key, char *to, size_t size)
{
	copy(json_object_get(attributes, key), "string", to, size);
}

/* {"int": 0}, or {"ints": [0, 1]} with the nearest first */
static int number(const json_t *attributes, const char *key)
{
	const json_t *a = json_object_get(attributes, key), *v = json_object_get(a, "int");

	if (!v)
		v = json_array_get(json_object_get(a, "ints"), 0);
	return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT_MAX
		       ? (int)json_integer_value(v)
		       : -1;
}

static int add(struct dr_dra *d, const char *claim, const char *request, const json_t *device)
{
	const json_t *attributes = json_object_get(device, "attributes");
	struct dr_dra_device *x;

	if (d->n == DR_DRA_DEVICES_MAX)
		return -E2BIG;
	x = dr_realloc(d->v, (d->n + 1) * sizeof(*x));
	if (!x)
		return -ENOMEM;
	d->v = x;
	x += d->n++;
	*x = (struct dr_dra_device){ .numa = number(
					     attributes, "resource.kubernetes.io/numaNode") };
	dr_text_copy(x->claim, sizeof(x->claim), claim);
	dr_text_copy(x->request, sizeof(x->request), request);
	copy(device, "driver", x->driver, sizeof(x->driver));
	copy(device, "name", x->name, sizeof(x->name));
	copy(json_object_get(device, "networkData"), "interfaceName", x->ifname, sizeof(x->ifname));
	copy_attribute(attributes, "resource.kubernetes.io/pciBusID", x->bus_id, sizeof(x->bus_id));
	copy_attribute(
		attributes, "resource.kubernetes.io/pcieRoot", x->pcie_root, sizeof(x->pcie_root));
	return 0;
}

static int add_requests(struct dr_dra *d, const char *claim, const json_t *metadata)
{
	const json_t *request, *device;
	size_t i, k;
	int rc = 0;

	json_array_foreach(json_object_get(metadata, "requests"), i, request)
	{
		const char *name = json_string_value(json_object_get(request, "name"));

		json_array_foreach(json_object_get(request, "devices"), k, device) rc =
			rc ? rc : add(d, claim, name ? name : "", device);
	}
	return rc;
}

static bool is_known(const json_t *o)
{
	const char *kind = json_string_value(json_object_get(o, "kind"));
	const char *api = json_string_value(json_object_get(o, "apiVersion"));

	if (!kind || strcmp(kind, "DeviceMetadata") != 0 || !api ||
		strncmp(api, group, sizeof(group) - 1) != 0)
		return false;
	for (size_t i = 0; i < DR_ARRAY_LEN(versions); i++)
		if (strcmp(api + sizeof(group) - 1, versions[i]) == 0)
			return true;
	return false;
}

static bool is_blank(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr(" \t\r\n", text[i]))
			return false;
	return true;
}

int dr_dra_parse(
	struct dr_dra *d, const char *claim, const char *text, size_t len, struct dr_err *e)
{
	size_t before = d->n, at = 0;
	json_error_t je;
	int rc = 0;

	/* The first object whose version is known: all say the same. */
	while (at < len && !is_blank(text + at, len - at)) {
		json_t *o = json_loadb(text + at, len - at, JSON_DISABLE_EOF_CHECK, &je);
		bool known = o && is_known(o);

		if (known)
			rc = add_requests(d, claim, o);
		json_decref(o);
		if (!o)
			return dr_err_set(e, -EBADMSG, "no JSON: %s", je.text);
		if (known) {
			if (rc)
				d->n = before;
			return rc ? dr_err_set(e, rc, "%s",
					    rc == -ENOMEM ? "out of memory" : "too many devices")
				  : 0;
		}
		at += (size_t)je.position;
	}
	return dr_err_set(e, -EBADMSG, "no DeviceMetadata of %sv1, v1beta1 or v1alpha1", group);
}

/* ---- the directories ---- */

static int read_file(struct dr_dra *d, const char *claim, const char *path, struct dr_err *e)
{
	int fd = dr_file_open(path, e), rc;
	char *text = NULL;
	ssize_t got = 0;

	if (fd < 0)
		return fd;
	text = dr_realloc(NULL, DR_DRA_FILE_MAX + 1);
	if (!text)
		rc = dr_err_set(e, -ENOMEM, "out of memory");
	else if ((got = dr_file_read(fd, text, DR_DRA_FILE_MAX + 1)) < 0)
		rc = dr_err_set(e, (int)got, "%s", strerror((int)-got));
	else if (got > DR_DRA_FILE_MAX)
		rc = dr_err_set(e, -E2BIG, "larger than %d bytes", DR_DRA_FILE_MAX);
	else
		rc = dr_dra_parse(d, claim, text, (size_t)got, e);
	dr_free(text);
	close(fd);
	return rc;
}

static int visible(const struct dirent *x)
{
	return x->d_name[0] != '.';
}

/* The names in a directory, sorted; *n < 0: -errno. */
static struct dirent **names(const char *path, int *n)
{
	struct dirent **list = NULL;

	*n = scandir(path, &list, visible, alphasort);
	if (*n < 0)
		*n = -errno;
	return list;
}

static void free_names(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]); /* lint-ok: of scandir */
	free(list);	       /* lint-ok: of scandir */
}

static bool is_metadata(const char *name)
{
	size_t n = strlen(name);

	return n > sizeof(suffix) - 1 && strcmp(name + n - (sizeof(suffix) - 1), suffix) == 0;
}

/* depth: directories above the files. */
static int walk(struct dr_dra *d, const char *path, const char *claim, unsigned depth)
{
	int n, rc = 0;
	struct dirent **list = names(path, &n);

	for (int i = 0; i < n && rc == 0; i++) {
		const char *name = list[i]->d_name;
		char below[PATH_MAX];
		struct dr_err e = { 0 };

		if ((size_t)snprintf(below, sizeof(below), "%s/%s", path, name) >= sizeof(below))
			continue;
		if (depth > 0)
			rc = walk(d, below, claim ? claim : name, depth - 1);
		else if (is_metadata(name) && read_file(d, claim, below, &e))
			dr_warn("dra", "%s is left out: %s", below, e.text);
		if (rc == -ENOTDIR)
			rc = 0;
	}
	free_names(list, n);
	return n < 0 ? n : rc;
}

int dr_dra_read(const char *dir, struct dr_dra *out, struct dr_err *e)
{
	static const char *const kinds[] = { "resourceclaims", "resourceclaimtemplates" };
	char path[PATH_MAX];
	int rc = 0;

	*out = (struct dr_dra){ 0 };
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds) && rc == 0; i++) {
		snprintf(path, sizeof(path), "%.3000s/%s", dir, kinds[i]);
		rc = walk(out, path, NULL, 2);
		if (rc == -ENOENT)
			rc = 0;
	}
	if (rc == 0)
		return 0;
	dr_dra_free(out);
	return dr_err_set(e, rc, "device metadata in %s: %s", dir, strerror(-rc));
}

void dr_dra_free(struct dr_dra *d)
{
	dr_free(d->v);
	*d = (struct dr_dra){ 0 };
}

/* ---- what they are here ---- */

int dr_dra_gpu(const struct dr_dra_device *d, const struct dr_topo *t)
{
	for (unsigned g = 0; *d->bus_id && g < t->n_gpus; g++)
		if (strcasecmp(d->bus_id, t->gpu[g].bus_id) == 0)
			return (int)g;
	return -1;
}

const struct dr_topo_nic *dr_dra_nic(const struct dr_dra_device *d, const struct dr_topo *t)
{
	/* The interface is one of several functions or ports, so its name comes first. */
	const struct dr_topo_nic *nic = *d->ifname ? dr_topo_find_nic(t, d->ifname) : NULL;

	for (unsigned i = 0; !nic && *d->bus_id && i < t->n_nics; i++)
		if (strcasecmp(d->bus_id, t->nic[i].bus_id) == 0)
			nic = &t->nic[i];
	return nic;
}
