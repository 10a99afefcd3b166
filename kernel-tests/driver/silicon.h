/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory that the silicon (a TCG plugin on the host) shares with this driver.
 * The same contract in Rust, with the meaning of each field: kernel-tests/src/layout.rs.
 */
#ifndef HBBP_SILICON_H
#define HBBP_SILICON_H

#include <linux/types.h>

#define SILICON_MAGIC		0x314c495350424248ULL	/* "HBBPSIL1" */
#define SILICON_BYTES		(256u << 20)
#define SILICON_MAX_CPUS	8
#define SILICON_MAX_DEPTH	32
#define SILICON_COUNTERS	8
#define SILICON_IDT		0x1000
#define SILICON_CPU_AREA	0x2000
#define SILICON_CPU_AREA_BYTES	0x1000
#define SILICON_RINGS		0x100000
#define SILICON_RING_BYTES	0x100000
#define SILICON_RING_SLOTS	1024

#define SILICON_EVENT_INSTRUCTIONS	1
#define SILICON_EVENT_TAKEN		2

#define SILICON_RING_USER	1
#define SILICON_RING_KERNEL	2

#define SILICON_FLAG_EXACT	1

struct silicon_header {
	u64 magic;
	u32 depth;
	u32 running;
	u32 max_precise;
	u32 reserved;
	u64 anomalies;
};

struct silicon_counter {
	u32 event;
	u32 rings;
	u64 period;
	u64 left;
	u64 value;
	u32 precise;
	u32 generation;
};

struct silicon_cpu_area {
	u32 tgid;
	u32 pid;
	u8 comm[16];
	u32 branch_rings;
	u32 reserved;
	u64 head;
	u64 tail;
	u64 lost_full;
	u64 lost_dropped;
	u64 lost_stopped;
	u64 overflows;
	struct silicon_counter counters[SILICON_COUNTERS];
};

struct silicon_branch {
	u64 from;
	u64 to;
};

struct silicon_record {
	u64 seq;
	u64 ip;
	u32 counter;
	u32 generation;
	u32 tgid;
	u32 pid;
	u64 period;
	u64 branches;
	u32 nr;
	u32 flags;
	u64 wrong_path;
	struct silicon_branch entries[SILICON_MAX_DEPTH];
};

/* nopl imm32(%rax,%rax,1): nothing to the processor, a doorbell to the silicon. */
#define SILICON_DOORBELL(number) \
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0x00, " #number ", 0x00, 0x42, 0x48" ::: "memory")
#define SILICON_ATTACH()	SILICON_DOORBELL(1)
#define SILICON_SWITCH()	SILICON_DOORBELL(2)
#define SILICON_CONFIG()	SILICON_DOORBELL(3)
#define SILICON_READ()		SILICON_DOORBELL(4)
#define SILICON_START()		SILICON_DOORBELL(7)
#define SILICON_STOP()		SILICON_DOORBELL(8)
#define SILICON_FREEZE()	SILICON_DOORBELL(10)
#define SILICON_UNFREEZE()	SILICON_DOORBELL(11)

#endif
