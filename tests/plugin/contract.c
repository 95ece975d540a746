/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/units.h"

#include <stdlib.h>

unsigned long contract_env(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);
	uint64_t value;

	return text && dr_parse_u64(text, 0, UINT32_MAX, &value, NULL) == 0 ? value : otherwise;
}
