/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PLUGIN_H
#define DR_ORCHESTRATOR_CHECKS_PLUGIN_H

#include "orchestrator/options/options.h"

/*
 * `dualrail plugin FILE`: prints the devices of a network plugin of NCCL, connects each device with itself, checks that
 * the plugin obeys the rules of base/nccl_net_abi.h, and prints what it violates. Host memory only.
 *
 * The plugin's code runs in child processes, each with a deadline, so that a crash or a hang is a finding. Returns the
 * exit status: 0 no violation, 2 the file is no plugin, does not start or has no device, 4 violations.
 */
int dr_plugin_main(const struct dr_options *o);

#endif
