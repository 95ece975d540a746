/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_VERSION_H
#define DR_ORCHESTRATOR_OPTIONS_VERSION_H

#include <stdbool.h>

/* What the Makefile knows about a build; it stands in main.c, so that only main.o depends on the commit. */
struct dr_build {
	const char *commit;    /* "0123456789ab", "0123456789ab-dirty", "unknown" */
	const char *flags;     /* of the compiler and the linker */
	const char *libraries; /* those of the build: "jansson 2.14, libsodium 1.0.18" */
};

/* Prints the version on standard output; with verbose also the build, the transport kinds and the libraries. */
void dr_version_print(const struct dr_build *b, bool verbose);

#endif
