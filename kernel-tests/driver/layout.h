/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory that the emulated PMU (a TCG plugin on the host) shares with this driver.
 * The same contract in Rust, with the meaning of each field: kernel-tests/src/layout.rs.
 */
#ifndef HBBP_LAYOUT_H
#define HBBP_LAYOUT_H

#include <linux/types.h>

#define EMU_MAGIC		0x314c495350424248ULL	/* "HBBPSIL1" */
#define EMU_ADDRESS		(4ULL << 30)
#define EMU_BYTES		(256u << 20)
#define EMU_MAX_CPUS	8
#define EMU_MAX_DEPTH	32
#define EMU_COUNTERS	8
#define EMU_IDT		0x1000
#define EMU_CPU_AREA	0x2000
#define EMU_CPU_AREA_BYTES	0x1000
#define EMU_RINGS		0x100000
#define EMU_RING_BYTES	0x100000
#define EMU_RING_SLOTS	1024

#define EMU_EVENT_INSTRUCTIONS	1
#define EMU_EVENT_TAKEN		2
#define EMU_EVENT_CYCLES	3
#define EMU_EVENT_BRANCHES	4
#define EMU_EVENT_TIMER	5	/* cycles, as a timer */
#define EMU_EVENT_CLASSES	6	/* the first of the classes of instructions */
#define EMU_EVENT_LOADS		6
#define EMU_EVENT_STORES	7
#define EMU_EVENT_LOCKED	8
#define EMU_EVENT_CONDITIONAL	9
#define EMU_EVENT_NOT_TAKEN	10
#define EMU_EVENT_CALLS		11
#define EMU_EVENT_RETURNS	12
#define EMU_EVENT_NOPS		13

#define EMU_RING_USER	1
#define EMU_RING_KERNEL	2

#define EMU_FLAG_EXACT	1

struct emu_header {
	u64 magic;
	u32 depth;
	u32 running;
	u32 max_precise;
	u32 reserved;
	u64 anomalies;
};

struct emu_counter {
	u32 event;
	u32 rings;
	u64 period;
	u64 left;
	u64 value;
	u32 precise;
	u32 generation;
};

struct emu_cpu_area {
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
	struct emu_counter counters[EMU_COUNTERS];
};

struct emu_branch {
	u64 from;
	u64 to;
};

struct emu_record {
	u64 seq;
	u64 ip;
	u32 counter;
	u32 generation;
	u32 tgid;
	u32 pid;
	u64 period;
	u64 value;
	u64 branches;
	u32 nr;
	u32 flags;
	u64 wrong_path;
	struct emu_branch entries[EMU_MAX_DEPTH];
	u16 cycles[EMU_MAX_DEPTH];
};

/* nopl imm32(%rax,%rax,1): nothing to the processor, a doorbell to the emulated PMU. */
#define EMU_DOORBELL(number) \
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0x00, " #number ", 0x00, 0x42, 0x48" ::: "memory")
#define EMU_ATTACH()	EMU_DOORBELL(1)
#define EMU_SWITCH()	EMU_DOORBELL(2)
#define EMU_CONFIG()	EMU_DOORBELL(3)
#define EMU_READ()		EMU_DOORBELL(4)
#define EMU_START()		EMU_DOORBELL(7)
#define EMU_STOP()		EMU_DOORBELL(8)
#define EMU_FREEZE()	EMU_DOORBELL(10)
#define EMU_UNFREEZE()	EMU_DOORBELL(11)

#endif
