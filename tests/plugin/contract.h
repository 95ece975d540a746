/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_CONTRACT_H
#define DR_TESTS_PLUGIN_CONTRACT_H

#include "tests/plugin/end.h"

/* One rule of the contract between NCCL and a plugin, shown by one to three ranks. */
struct contract_case {
	const char *name;
	void (*run)(struct rank *r);
	unsigned ranks;
	unsigned from, to; /* versions; 0: all */
	bool rails;	   /* needs two devices */
	bool each;	   /* what depends on the version: with --brief too */
};

struct contract_cases {
	const struct contract_case *of;
	unsigned n;
};
extern const struct contract_cases contract_life, contract_unload, contract_open, contract_peers,
	contract_data, contract_close;

/* The number in the environment, else `otherwise`. */
unsigned long contract_env(const char *name, unsigned long otherwise);

#endif
