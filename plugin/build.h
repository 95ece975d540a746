/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_BUILD_H
#define DR_PLUGIN_BUILD_H

/* The commit that the plugin was built from, "-dirty" behind it if the sources were changed; "unknown" without git. */
const char *ha_build(void);

#endif
