/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_COMMANDS_H
#define DR_BASE_COMMANDS_H

/* The commands of the program, as bits of dr_opt.commands: which command takes an option. */
enum dr_command_bit {
	DR_CMDBIT_SERVER = 1,
	DR_CMDBIT_CLIENT = 2,
	DR_CMDBIT_DEMO = 4,
	DR_CMDBIT_TOPO = 8,
	DR_CMDBIT_DOCTOR = 16,
	DR_CMDBIT_COMPARE = 32,
	DR_CMDBIT_PLUGIN = 64,
	DR_CMDBIT_REPORT = 128,
	DR_CMDBIT_PREFLIGHT = 256,
	DR_CMDBIT_SWEEP = 512,
	DR_CMDBIT_FAULTY = DR_CMDBIT_CLIENT | DR_CMDBIT_DEMO, /* those that may inject faults */
	/* those that decide what is measured */
	DR_CMDBIT_RUN = DR_CMDBIT_FAULTY | DR_CMDBIT_PREFLIGHT | DR_CMDBIT_SWEEP,
	DR_CMDBIT_ALL = DR_CMDBIT_SERVER | DR_CMDBIT_RUN, /* those that move data */
};

#endif
