/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_SCHEMA_H
#define DR_BASE_SCHEMA_H

#include "base/fields.h"

/*
 * JSON Schema 2020-12 of what dr_fields_to_json writes: types, ranges, names of enums, which keys are
 * always there, descriptions and units. No other keys are allowed. The schema of the rows of a list is
 * put into `defs` under the table's `what` and referred to. New references; NULL: no memory.
 */
struct json_t *dr_schema_of(const struct dr_fields *t, struct json_t *defs);
/* The whole schema document, with `id` ("urn:...") and its own $defs. */
struct json_t *dr_schema_document(const struct dr_fields *t, const char *id);

#endif
