/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of this driver know of each other: driver.c finds the device and the task switches,
 * pmu.c is the face to the perf core, drain.c delivers the records.
 */
#ifndef HBBP_DRIVER_H
#define HBBP_DRIVER_H

#include <linux/hrtimer.h>
#include <linux/perf_event.h>
#include <linux/percpu.h>

#include "layout.h"

/* Records that left the ring, by what became of them: their sum is the emulated PMU's head. */
struct emu_stats {
	u64 delivered;		/* given to the perf core */
	u64 orphaned;		/* the event was gone when the record came */
	u64 throttled;		/* the perf core had stopped the event for coming too often */
	u64 strangers;		/* delivered while another task was current than at the overflow */
	u64 nmis;		/* drains in NMI context */
	u64 late;		/* a task switch went on although its drain had not come */
};

struct emu_cpu {
	struct perf_event *events[EMU_COUNTERS];
	struct hrtimer timer;
	struct pt_regs regs;
	struct {
		u64 nr;
		u64 hw_idx;
		struct perf_branch_entry entries[EMU_MAX_DEPTH];
	} stack;
	struct emu_stats stats;
	u32 generation;
	u32 sampling;		/* events with a period that are running */
	u32 throttled;		/* bit per counter: the perf core asked for a pause */
	u32 frozen;		/* depth of emu_freeze() */
	bool draining;
};

DECLARE_PER_CPU(struct emu_cpu, emu_cpus);
extern struct attribute_group emu_stats_group;
extern unsigned int emu_drain_us;
extern bool emu_mark_events;
extern bool emu_clock_of_cycles;
extern struct pmu *emu_clock;

struct emu_header *emu_header(void);
struct emu_cpu_area *emu_area(int cpu);
struct emu_record *emu_record(int cpu, u64 index);

void emu_freeze(void);
void emu_unfreeze(void);
int emu_pmu_register(const char *name, int type);
void emu_pmu_unregister(void);
int emu_clock_take(void);

int emu_add(struct perf_event *event, int flags);
void emu_del(struct perf_event *event, int flags);
void emu_start(struct perf_event *event, int flags);
void emu_stop(struct perf_event *event, int flags);
void emu_read(struct perf_event *event);

int emu_drain_init(void);
void emu_drain_exit(void);
void emu_drain_request(void);
void emu_drain_timer(bool on);

#endif
