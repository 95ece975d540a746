/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_PULSE_H
#define DR_ORCHESTRATOR_SESSION_PULSE_H

#include <pthread.h>
#include <stdbool.h>

/*
 * Calls `beat` every DR_PULSE_NS on a thread of its own while the main thread opens GPUs or registers memory. `beat` may use
 * what the caller does not touch between start and stop. All zero: not started.
 */
enum { DR_PULSE_NS = 100 * 1000 * 1000 };
struct dr_pulse {
	void (*beat)(void *arg);
	void *arg;
	/* private */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t stopped;
	bool running, stop;
};

/* Without a thread (no memory) nothing beats; that is logged. beat NULL: no-op, and so is stop then. */
void dr_pulse_start(struct dr_pulse *p, void (*beat)(void *arg), void *arg);
/* `beat` has returned and is called no more. */
void dr_pulse_stop(struct dr_pulse *p);

#endif
