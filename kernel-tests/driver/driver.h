/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of this driver know of each other: silicon.c finds the device and the task switches,
 * pmu.c is the face to the perf core, drain.c delivers the records.
 */
#ifndef HBBP_DRIVER_H
#define HBBP_DRIVER_H

#include <linux/hrtimer.h>
#include <linux/perf_event.h>
#include <linux/percpu.h>

#include "silicon.h"

/* Records that left the ring, by what became of them: their sum is the silicon's head. */
struct silicon_stats {
	u64 delivered;		/* given to the perf core */
	u64 orphaned;		/* the event was gone when the record came */
	u64 throttled;		/* the perf core had stopped the event for coming too often */
	u64 strangers;		/* delivered while another task was current than at the overflow */
	u64 nmis;		/* drains in NMI context */
	u64 late;		/* a task switch went on although its drain had not come */
};

struct silicon_cpu {
	struct perf_event *events[SILICON_COUNTERS];
	struct hrtimer timer;
	struct pt_regs regs;
	struct {
		u64 nr;
		u64 hw_idx;
		struct perf_branch_entry entries[SILICON_MAX_DEPTH];
	} stack;
	struct silicon_stats stats;
	u32 generation;
	u32 sampling;		/* events with a period that are running */
	u32 throttled;		/* bit per counter: the perf core asked for a pause */
	u32 frozen;		/* depth of silicon_freeze() */
	bool draining;
};

DECLARE_PER_CPU(struct silicon_cpu, silicon_cpus);
extern struct attribute_group silicon_stats_group;
extern unsigned int silicon_drain_us;
extern bool silicon_mark_events;

struct silicon_header *silicon_header(void);
struct silicon_cpu_area *silicon_area(int cpu);
struct silicon_record *silicon_record(int cpu, u64 index);

void silicon_freeze(void);
void silicon_unfreeze(void);
int silicon_pmu_register(const char *name, int type);
void silicon_pmu_unregister(void);

int silicon_drain_init(void);
void silicon_drain_exit(void);
void silicon_drain_request(void);
void silicon_drain_timer(bool on);

#endif
