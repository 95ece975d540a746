/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_CONFIG_PRIV_H
#define DR_PLUGIN_CONFIG_PRIV_H

#include "plugin/config.h"

#include <stddef.h>

/* The table of variables, shared by config.c (parser) and config_text.c (texts). */

/* Type of the member at the row's offset in struct ha_config. */
enum ha_var_kind {
	HA_VAR_BOOL,   /* bool: 0 or 1 */
	HA_VAR_UINT,   /* unsigned */
	HA_VAR_INT,    /* int, from min */
	HA_VAR_MS,     /* int64_t in ns, given in milliseconds */
	HA_VAR_SIZE,   /* uint64_t, bytes */
	HA_VAR_CHOICE, /* int: index into choices, plus first */
	HA_VAR_NAMES,  /* struct ha_names */
	HA_VAR_PATH,   /* char[HA_PATH_BYTES] */
	HA_VAR_LEVEL,  /* int: NCCL's log level. Other words are NCCL's to judge */
};

/* When a variable has an effect. */
enum ha_var_use {
	HA_USE_ALWAYS,
	HA_USE_VERBS,	     /* with the verbs transport */
	HA_USE_BACKUP,	     /* with HA_NCCL_ENABLE_BACKUP=1 */
	HA_USE_FAILBACK,     /* with HA_NCCL_ENABLE_FAILBACK=1 too */
	HA_USE_CONSERVATIVE, /* with HA_NCCL_DETECT=conservative */
	HA_USE_NEVER,	     /* see `unused` */
};

struct ha_variable {
	const char *name;
	enum ha_var_kind kind;
	enum ha_var_use use;
	size_t offset;
	const char *def;	  /* as text; NULL: zeroed, or computed: see default_text */
	const char *default_text; /* for the documents; NULL: def */
	uint64_t min, max;	  /* of numbers, in the unit of the text; SIZE: bytes */
	int first;		  /* CHOICE: number of the first choice; INT: smallest value */
	const char *choices;
	const char *unit;   /* for the documents: "ms"; NULL: none */
	const char *help;   /* meaning */
	const char *unused; /* HA_USE_NEVER: why, and what holds instead */
	bool fixed;	    /* always in the line that states what is in force */
};

/* In ascending precedence: of two rows with the same offset the later one wins. */
extern const struct ha_variable ha_variables[];
extern const unsigned ha_n_variables;

/* Variables of nccl-ha's documents that have no meaning here; ends with a name of NULL. */
struct ha_former {
	const char *name, *instead;
};
extern const struct ha_former ha_former_variables[];

/* config_text.c */
/* The value of a row as it would be written in the environment. */
void ha_var_format(const struct ha_variable *v, const struct ha_config *c, char *buf, size_t len);
/* "0 or 1", "1 to 10000 ms": what is accepted. */
void ha_var_accepted(const struct ha_variable *v, char *buf, size_t len);

/* config.c */
/* Every variable at its default; only memory of *out is written. */
void ha_config_defaults(struct ha_config *out, const struct ha_host *host);

#endif
