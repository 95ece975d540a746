/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include <inttypes.h>
#include <stdio.h>

/* What the schedules reached. Of a state that none of thousands reaches nothing is shown. */

struct sim_cover sim_cover;

int sim_covered(void)
{
	const struct sim_cover *v = &sim_cover;
	const struct {
		const char *name;
		uint64_t n;
	} must[] = { { "messages", v->messages }, { "switches", v->switches },
		{ "failbacks", v->failbacks }, { "replayed messages", v->replayed },
		{ "deaths", v->deaths }, { "switches of several rounds", v->rounds },
		{ "heals", v->heals }, { "detected by the sender", v->self_tx },
		{ "detected by the receiver", v->self_rx }, { "several parts", v->two_part },
		{ "peer stalls", v->stalls }, { "protected again", v->protections },
		{ "gaps compared", v->gaps }, { "switches compared", v->compared },
		{ "switches of an idle channel", v->idle_switches },
		{ "answers of a kernel without a path", v->answers },
		{ "control resumed", v->resumes }, { "control messages", v->control_messages },
		{ "stream", v->personality[0] }, { "remote write", v->personality[1] },
		{ "plugin", v->personality[2] }, { "zombie writes", v->zombies },
		{ "fenced with data in the NIC", v->snapshots },
		{ "read again by the NIC", v->read_again }, { "segments lost", v->lost },
		{ "completions reported twice", v->dups }, { "fences that failed", v->stuck },
		{ "channels given up", v->closes }, { "with messages outstanding", v->closed_busy },
		{ "confirmed by the peer", v->confirmed }, { "frames replayed", v->replays },
		{ "frames lost", v->frames_lost }, { "NOTIFY lost", v->notifies_lost },
		{ "flaps in a row", v->flaps }, { "stops of 10 s and more", v->long_stops },
		{ "channels that came and went", v->visitors },
		{ "their ends removed", v->removed }, { "left in the middle", v->rude },
		{ "dialled before they exist", v->early_dials }, { "idle channels", v->idle },
		{ "strangers (stream)", v->strangers[0] },
		{ "connections rejected", v->rejected[0] },
		{ "handshakes cut half-way (stream)", v->cut_hellos[0] },
		{ "strangers (remote write)", v->strangers[1] },
		{ "greetings rejected", v->rejected[1] }, { "greetings outdated", v->outdated[1] },
		{ "handshakes broken (remote write)", v->cut_hellos[1] },
		{ "HELLOs before their path", v->kept_hellos },
		{ "HELLOs answered again", v->welcomed_again }, { "one manager", v->managers[0] },
		{ "two managers", v->managers[1] }, { "three managers", v->managers[2] },
		{ "shared heartbeats", v->shared }, { "own heartbeats", v->alone },
		{ "managers that start late", v->late_starts },
		{ "ticks of others than the driver", v->taken_over },
		{ "verdicts that several managers take", v->verdicts }, { "wakes", v->wakes } };
	const struct {
		const char *name;
		uint64_t n;
	} may[] = { { "refused writes", v->refused }, { "connections outdated", v->outdated[0] },
		{ "duplicates refused", v->duplicates }, { "stale completions refused", v->stale },
		{ "discarded by a stream", v->discarded },
		{ "closes that nobody confirmed", v->unconfirmed },
		{ "worst gap, us", v->worst_gap_ns / 1000 },
		{ "latest tick of shared heartbeats, us", v->worst_late_ns / 1000 },
		{ "ends that nobody told of the end", v->untold },
		{ "ends with another error than the peer", v->unlike },
		{ "turns with a deadline that stays due", v->spins },
		{ "virtual seconds", v->virtual_ms / 1000 } };
	int missing = 0;

	for (size_t i = 0; i < DR_ARRAY_LEN(must); i++) {
		printf("  %-36s %" PRIu64 "\n", must[i].name, must[i].n);
		missing += must[i].n == 0;
	}
	for (unsigned i = 0; i < F_KINDS; i++) {
		printf("  fault %-30s %" PRIu64 "\n", sim_fault_names[i], v->faults[i]);
		missing += v->faults[i] == 0;
	}
	for (unsigned i = 1; i < SIM_STEPS; i++) {
		printf("  second fault: %-22s %" PRIu64 "\n", sim_step_names[i], v->steps[i]);
		missing += v->steps[i] == 0;
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(may); i++)
		printf("  %-36s %" PRIu64 " (may be none)\n", may[i].name, may[i].n);
	return missing;
}
