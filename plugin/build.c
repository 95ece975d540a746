/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/build.h"

/* From the Makefile, for this file and main.c alone. */
#ifndef DR_COMMIT
#define DR_COMMIT "unknown"
#endif

const char *ha_build(void)
{
	return DR_COMMIT;
}
