/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_FIELDS_H
#define DR_BASE_FIELDS_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A table of fields describes one struct: the name, meaning and offset of each member. The table drives
 * initialisation, JSON in both directions, merging by key, the outputs and the JSON Schema, so that a
 * field is written down once.
 *
 * Unknown values: an INT, US, NS is DR_UNSET, a STAMP 0, a NUM is NAN, an ENUM -1, a STR "". A ROW is
 * unknown when its first field is, a list when it is empty. Unknown values are written as null.
 * Tables are const; the functions are thread-safe for different structs.
 */
struct json_t;

#define DR_UNSET INT64_MIN

enum dr_field_kind {
	DR_F_INT,   /* int64_t, 0..2^53; DR_UNSET: null */
	DR_F_US,    /* int64_t ns, written as microseconds with decimals; may be negative */
	DR_F_MS,    /* int64_t ns, written as milliseconds with decimals; may be negative */
	DR_F_NS,    /* int64_t ns, written as such; 0..2^62 */
	DR_F_STAMP, /* int64_t ns, 0 is "not reached": null */
	DR_F_WALL,  /* int64_t ns since 1970, written as ISO 8601; not read back */
	DR_F_NUM,   /* double; not finite: null; read from 0 to 1e18 */
	DR_F_ENUM,  /* int; index into names, -1: null */
	DR_F_STR,   /* char[len]; "": null */
	DR_F_TEXT,  /* const char *, borrowed; "", NULL: null; not read back */
	DR_F_UINT,  /* unsigned integer of 1 to 8 bytes, at most 2^53 */
	DR_F_SINT,  /* signed integer of 1 to 8 bytes, -2^53..2^53 */
	DR_F_BOOL,  /* bool */
	DR_F_ERRNO, /* int; 0: null, else the name: "ECONNRESET" */
	DR_F_CONST, /* no member: the text `text_value`; reading refuses another one */
	DR_F_JSON, /* struct json_t *; written with a reference of its own, not read back; with `row`: an
		     * array of such rows, else described by `schema` */
	DR_F_ROW,  /* a struct, described by `row`: an object */
	DR_F_ROWS, /* array of structs of `row` in this struct, its count (unsigned) at n_off */
	DR_F_LIST, /* struct { row *v; size_t n, ...; }: an array; not read back */
};

enum dr_field_flags {
	DR_F_KEY = 1,	   /* part of the row's key, see dr_fields_same_key */
	DR_F_REQUIRED = 2, /* never null: "" is written as ""; reading refuses missing and null */
	DR_F_OMIT = 4,	   /* left out when unknown (UINT, SINT, BOOL: when 0) */
	DR_F_NULLABLE = 8, /* a ROW: null when unknown */
	DR_F_WORD = 16, /* a STR: reading refuses "", blanks, control bytes and what does not fit */
	DR_F_LARGER = 32,     /* an INT: merging takes the larger value */
	DR_F_HIDDEN = 64,     /* not in JSON; for other outputs */
	DR_F_FLAG_FIRST = 256 /* flags from here on belong to the table's owner */
};

struct dr_fields;
struct dr_field {
	const char *name; /* "rtt_us.p50" is p50 in the object rtt_us; "": the row is this value */
	enum dr_field_kind kind;
	unsigned flags;
	size_t off, len;
	const char *text; /* description */
	/* Range of an integer when they differ: a value outside is refused, or written as null. */
	int64_t min, max;
	const char *const *names; /* ENUM: ends in NULL */
	const char *text_value;	  /* CONST */
	const struct dr_fields *row;
	size_t n_off;
	const char *schema; /* JSON: its JSON Schema; other kinds: further keywords, as an object */
	const void *out;    /* the owner's */
};
struct dr_fields {
	const char *what; /* "bandwidth" */
	const struct dr_field *f;
	size_t n;
	size_t size; /* of the row */
	const char *text;
	const void *out; /* the owner's */
	bool tuple;	 /* written as an array of the values in this order, not as an object */
	/* What no field says; not of a tuple. put adds to the object of a row: 0, or -1 without memory. get
	 * checks a row after its fields and reads more from obj: 0 or -EPROTO. NULL: nothing. */
	int (*put)(const void *row, struct json_t *obj);
	int (*get)(void *row, const struct json_t *obj, struct dr_err *e);
};

/* The values of a yes-or-no enum: written as JSON booleans. */
extern const char *const dr_bool_names[];

/* Rows of a table; further members of struct dr_field may follow.
 * DR_FIELD("rtt_us.p50", DR_F_US, struct row, p50_ns, .text = "Median") */
#define DR_FIELD(name_, kind_, type, member, ...)                                                  \
	{                                                                                          \
		.name = (name_), .kind = (kind_), .off = offsetof(type, member),                   \
		.len = sizeof(((type *)0)->member), __VA_ARGS__                                    \
	}
#define DR_FIELD_ENUM(name_, type, member, names_, ...)                                            \
	DR_FIELD(name_, DR_F_ENUM, type, member, .names = (names_), __VA_ARGS__)
#define DR_FIELD_ROW(name_, type, member, row_, ...)                                               \
	DR_FIELD(name_, DR_F_ROW, type, member, .row = &(row_), __VA_ARGS__)
#define DR_FIELD_ROWS(name_, type, member, count, row_, ...)                                       \
	DR_FIELD(name_, DR_F_ROWS, type, member, .n_off = offsetof(type, count), .row = &(row_),   \
		__VA_ARGS__)
#define DR_FIELD_CONST(name_, value, ...)                                                          \
	{                                                                                          \
		.name = (name_), .kind = DR_F_CONST, .flags = DR_F_REQUIRED,                       \
		.text_value = (value), __VA_ARGS__                                                 \
	}
/* Further members of struct dr_fields may follow. */
#define DR_FIELDS(var, what_, fields, type, ...)                                                   \
	const struct dr_fields var = { .what = (what_),                                            \
		.f = (fields),                                                                     \
		.n = DR_ARRAY_LEN(fields),                                                         \
		.size = sizeof(type),                                                              \
		__VA_ARGS__ }

/* The same with the rows in one: DR_TABLE(var, "what", struct row, "description", DR_FIELD(...), ...). */
#define DR_TABLE(var, what_, type, text_, ...)                                                     \
	const struct dr_fields var = { .what = (what_),                                            \
		.f = (const struct dr_field[]){ __VA_ARGS__ },                                     \
		.n = DR_ARRAY_LEN(((const struct dr_field[]){ __VA_ARGS__ })),                     \
		.size = sizeof(type),                                                              \
		.text = (text_) }

/* names[i], "-" when i is out of range. */
const char *dr_enum_name(const char *const *names, int i);

/* Every byte 0, then every field unknown. */
void dr_fields_init(const struct dr_fields *t, void *row);
/* NULL: no memory. */
struct json_t *dr_fields_to_json(const struct dr_fields *t, const void *row);
/* n rows from v on as an array. NULL: no memory. */
struct json_t *dr_rows_to_json(const struct dr_fields *t, const void *v, size_t n);
/* Initialises the row and reads what is there; what is missing or null stays unknown; other keys are
 * ignored. -EPROTO: a value of the wrong type or out of range, or a required one missing; e names the
 * field, the value and what is accepted. */
int dr_fields_from_json(const struct dr_fields *t, void *row, const struct json_t *obj,
	struct dr_err *e) DR_MUST_CHECK;
/* Fields that are unknown in `into` are taken from `from`. */
void dr_fields_fill(const struct dr_fields *t, void *into, const void *from);
/* Are all key fields equal? false without key fields. */
bool dr_fields_same_key(const struct dr_fields *t, const void *a, const void *b);
/* Finds rows of a list by key with a hash, in constant time. {0}: none was looked for yet. Rows
 * that come, or go at the end, are noticed; the keys of the others stay. */
struct dr_row_index {
	uint32_t *slot; /* row + 1; 0: none. The owner frees it with dr_free */
	size_t cap, n;
	uint8_t key[16];
};
/* The row of these n with the key of this one; NULL: there is none. Without memory it searches. */
void *dr_rows_find(struct dr_row_index *x, const struct dr_fields *t, const void *v, size_t n,
	const void *row);
/* Is the field of this row unknown, as stated above? */
bool dr_field_unknown(const struct dr_field *f, const void *row);
/* The field's value in JSON. NULL: no memory. */
struct json_t *dr_field_value(const struct dr_field *f, const void *row);
/* The field's key in its object, and the name of that object in the row's, "": none. */
enum { DR_FIELD_OUTER = 32 };
const char *dr_field_key(const struct dr_field *f, char outer[DR_FIELD_OUTER]);

/* Parses text of a peer or a file. Refused are deeper levels, a name twice, and more values than a
 * document of its size has: they take up to 80 times its bytes. NULL and a text in e, clean. */
enum { DR_JSON_DEPTH_MAX = 32 };
struct json_t *dr_json_parse(const char *text, size_t len, struct dr_err *e);
/* Of any bytes; what is not UTF-8 is cleaned (base/text.h). */
struct json_t *dr_json_text(const char *s); /* "" stays "" */
struct json_t *dr_json_wall(int64_t wall_ns);
/* The text obj.key, borrowed; "" where there is none. */
const char *dr_json_string(const struct json_t *obj, const char *key);
/* Appends v, which it takes over; *list becomes NULL when there is no memory, or v is NULL. */
void dr_json_append(struct json_t **list, struct json_t *v);
/* obj.key = v, taking v over; counts failures in *failed, v NULL being one. */
void dr_json_put(struct json_t *obj, const char *key, struct json_t *v, int *failed);

#endif
