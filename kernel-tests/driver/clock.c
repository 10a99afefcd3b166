// SPDX-License-Identifier: GPL-2.0
/*
 * The event cpu-clock, by a timer that ticks by the cycles of the hardware profile: one cycle is one nanosecond. The guest's own
 * timers tick by instructions or by the host's clock, and say nothing of time.
 */
#include <linux/err.h>

#include "driver.h"

bool emu_clock_of_cycles;
struct pmu *emu_clock;

/* The perf core's own PMU of the clock keeps its checks of events, and gets the functions of this driver. */
int emu_clock_take(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.size = sizeof(attr),
		.disabled = 1,
	};
	struct perf_event *event = perf_event_create_kernel_counter(&attr, 0, NULL, NULL, NULL);

	if (IS_ERR(event))
		return PTR_ERR(event);
	emu_clock = event->pmu;
	perf_event_release_kernel(event);
	emu_clock->add = emu_add;
	emu_clock->del = emu_del;
	emu_clock->start = emu_start;
	emu_clock->stop = emu_stop;
	emu_clock->read = emu_read;
	return 0;
}
