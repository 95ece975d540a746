/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/version.h"

#include "transport/kind.h"

#include <gnu/libc-version.h>
#include <hwloc.h>
#include <jansson.h>
#include <microhttpd.h>
#include <sodium.h>
#include <stdio.h>

static const char *jansson_in_use(void)
{
#if JANSSON_VERSION_HEX >= 0x020d00
	return jansson_version_str();
#else
	return JANSSON_VERSION;
#endif
}

static void print_transports(void)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++)
		printf("%s%s: %s%s%s\n", i ? "             " : "transports:  ", k->name, k->about,
			k->package ? "; needs at run time: " : "", k->package ? k->package : "");
}

/* libmnl, libnftnl and libnuma do not tell their version at run time. */
static void print_libraries(const struct dr_build *b)
{
	unsigned hwloc = hwloc_get_api_version();

	printf("built with:  %s\n", b->libraries);
	printf("in use:      jansson %s, libsodium %s, libmicrohttpd %s, hwloc API %u.%u.%u, glibc %s\n",
		jansson_in_use(), sodium_version_string(), MHD_get_version(), hwloc >> 16,
		hwloc >> 8 & 0xff, hwloc & 0xff, gnu_get_libc_version());
}

void dr_version_print(const struct dr_build *b, bool verbose)
{
#ifdef __clang__
	static const char compiler[] = __VERSION__;
#else
	static const char compiler[] = "gcc " __VERSION__;
#endif
	char names[64];

	printf("dualrail %s (transports: %s)\n", DR_VERSION,
		dr_transport_names(names, sizeof(names)));
	if (!verbose)
		return;
	printf("commit:      %s\ncompiler:    %s\nflags:       %s\n", b->commit, compiler,
		b->flags);
	print_transports();
	print_libraries(b);
}
