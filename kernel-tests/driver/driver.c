// SPDX-License-Identifier: GPL-2.0
/*
 * hbbp_emu: driver of the emulated branch-recording PMU (see kernel-tests/src/lib.rs).
 * This file finds the device, tells the emulated PMU which task runs, and starts the other two parts.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>
#include <asm/desc.h>

#include "driver.h"


static char *name = "cpu";
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "name of the PMU; 'cpu' takes the place of the core PMU that the machine lacks");
module_param_named(drain_us, emu_drain_us, uint, 0644);
MODULE_PARM_DESC(drain_us, "microseconds between two drains by the timer");
module_param_named(mark_events, emu_mark_events, bool, 0644);
MODULE_PARM_DESC(mark_events, "reference counts span the time in which a CPU has a sampling event");

module_param_named(clock, emu_clock_of_cycles, bool, 0444);
MODULE_PARM_DESC(clock, "the event cpu-clock ticks by the cycles of the hardware profile");

static void *memory;
static struct tracepoint *switch_point, *exec_point;

struct emu_header *emu_header(void)
{
	return memory;
}

struct emu_cpu_area *emu_area(int cpu)
{
	return memory + EMU_CPU_AREA + cpu * EMU_CPU_AREA_BYTES;
}

struct emu_record *emu_record(int cpu, u64 index)
{
	struct emu_record *ring = memory + EMU_RINGS + cpu * EMU_RING_BYTES;

	return &ring[index % EMU_RING_SLOTS];
}

static void tell_task(struct task_struct *task)
{
	struct emu_cpu_area *area = emu_area(smp_processor_id());

	area->tgid = task->tgid;
	area->pid = task->pid;
	/* Threads may rename themselves; a process is known by the name of its leader. */
	memcpy(area->comm, task->group_leader->comm, sizeof(area->comm));
	EMU_SWITCH();
}

/* First the records of the task that goes, while it is still current; then the name of the one that comes. */
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
{
	emu_freeze();
	emu_drain_request();
	tell_task(next);
	emu_unfreeze();
}

/* The task keeps its numbers and gets a new name. */
static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *binary)
{
	preempt_disable();
	tell_task(task);
	preempt_enable();
}

static void on_this_cpu(void *unused)
{
	emu_area(smp_processor_id())->branch_rings = EMU_RING_USER | EMU_RING_KERNEL;
	tell_task(current);
}

static void find_point(struct tracepoint *point, void *data)
{
	if (!strcmp(point->name, "sched_switch"))
		switch_point = point;
	if (!strcmp(point->name, "sched_process_exec"))
		exec_point = point;
}

static void tell_gates(void)
{
	u64 *gates = memory + EMU_IDT;
	struct desc_ptr idt;
	int vector;

	store_idt(&idt);
	for (vector = 0; vector < 256; vector++)
		gates[vector] = gate_offset((gate_desc *)idt.address + vector);
}

static int attach(void)
{
	int patience = 1000;

	if (emu_header()->magic != EMU_MAGIC) {
		pr_err("hbbp_emu: the plugin is not loaded\n");
		return -ENODEV;
	}
	if (num_possible_cpus() > EMU_MAX_CPUS) {
		pr_err("hbbp_emu: at most %d CPUs\n", EMU_MAX_CPUS);
		return -EINVAL;
	}
	tell_gates();
	EMU_ATTACH();
	while (!READ_ONCE(emu_header()->running) && --patience)
		msleep(1);
	return patience ? 0 : -ETIMEDOUT;
}

static int __init emu_init(void)
{
	int error;

	/* Not requested as a region: PID 1 maps the same memory to leave its files there. */
	memory = memremap(EMU_ADDRESS, EMU_BYTES, MEMREMAP_WB);
	if (!memory)
		return -ENODEV;
	error = attach();
	if (error)
		goto unmap;
	error = emu_drain_init();
	if (error)
		goto unmap;
	for_each_kernel_tracepoint(find_point, NULL);
	error = switch_point && exec_point ? tracepoint_probe_register(switch_point, on_switch, NULL) : -ENOENT;
	if (error)
		goto drain;
	error = tracepoint_probe_register(exec_point, on_exec, NULL);
	if (error)
		goto probe;
	on_each_cpu(on_this_cpu, NULL, 1);
	error = emu_clock_of_cycles ? emu_clock_take() : 0;
	if (error)
		goto exec;
	error = emu_pmu_register(name, strcmp(name, "cpu") ? -1 : PERF_TYPE_RAW);
	if (error)
		goto exec;
	return 0;
exec:
	tracepoint_probe_unregister(exec_point, on_exec, NULL);
probe:
	tracepoint_probe_unregister(switch_point, on_switch, NULL);
	tracepoint_synchronize_unregister();
drain:
	emu_drain_exit();
unmap:
	memunmap(memory);
	return error;
}

/* There is no way back from ATTACH: the driver stays for the life of its machine. */
module_init(emu_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The emulated branch-recording PMU of hbbp-sys' kernel tests");
