/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_SCHEMA_H
#define DR_ORCHESTRATOR_OUTPUT_SCHEMA_H

#include "base/fields.h"

/*
 * `dualrail schema` prints the names of the documents that the program writes, `dualrail schema NAME` the
 * JSON Schema of one on standard output. Returns the exit status: 0, or 1 for an unknown name.
 * Documents of other commands are added by the caller; a name of NULL ends them.
 */
struct dr_schema {
	const char *name, *id; /* "urn:dualrail:schema:NAME:VERSION" */
	const struct dr_fields *fields;
};
int dr_schema_main(const struct dr_schema *others, int argc, char *const argv[]);

#endif
