// SPDX-License-Identifier: GPL-2.0
/*
 * Delivery: the records of the ring go to the perf core in NMI context, as those of a PEBS buffer do.
 * A timer and every task switch raise an NMI to their own CPU, and its handler drains the ring.
 */
#include <linux/kprobes.h>
#include <linux/sched.h>
#include <linux/version.h>
#include <asm/apic.h>
#include <asm/nmi.h>
#include <asm/segment.h>

#include "driver.h"

/* Pauses to wait for an NMI that was sent to this CPU; the emulator delivers it within a block or two. */
#define PATIENCE	100000

unsigned int emu_drain_us = 500;

static int (*overflow)(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs);

static void copy_stack(struct emu_cpu *cpu, const struct emu_record *record, bool cycles)
{
	u32 i;

	cpu->stack.nr = min_t(u32, record->nr, EMU_MAX_DEPTH);
	cpu->stack.hw_idx = -1ULL;
	for (i = 0; i < cpu->stack.nr; i++) {
		struct perf_branch_entry *entry = &cpu->stack.entries[i];

		memset(entry, 0, sizeof(*entry));
		entry->from = record->entries[i].from;
		entry->to = record->entries[i].to;
		entry->cycles = cycles ? record->cycles[i] : 0;
		if (record->wrong_path >> i & 1)
			entry->spec = PERF_BR_SPEC_WRONG_PATH;
	}
}

/* Returns whether the perf core wants no more of this event for now. */
static int deliver(struct emu_cpu *cpu, struct perf_event *event, const struct emu_record *record)
{
	struct perf_branch_stack *stack = (struct perf_branch_stack *)&cpu->stack;
	struct pt_regs *regs = &cpu->regs;
	struct perf_sample_data data;
	u64 later;
	int stop;

	regs->ip = record->ip;
	regs->cs = (long)record->ip < 0 ? __KERNEL_CS : __USER_CS;
	regs->flags &= ~PERF_EFLAGS_EXACT;
	if (event->attr.precise_ip > 1 && (record->flags & EMU_FLAG_EXACT))
		regs->flags |= PERF_EFLAGS_EXACT;
	if (event->pmu == emu_clock && (user_mode(regs) ? event->attr.exclude_user : event->attr.exclude_kernel)) {
		cpu->stats.delivered++;
		return 0;
	}
	event->hw.last_period = record->period;
	perf_sample_data_init(&data, 0, record->period);
	if (has_branch_stack(event)) {
		copy_stack(cpu, record, !(event->attr.branch_sample_type & PERF_SAMPLE_BRANCH_NO_CYCLES));
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
		perf_sample_save_brstack(&data, event, stack, NULL);
#else
		data.br_stack = stack;
		data.sample_flags |= PERF_SAMPLE_BRANCH_STACK;
#endif
	}
	cpu->stats.delivered++;
	/* An event of one task says itself whose it is; it is taken off the CPU in the middle of a switch. */
	if (!(event->attach_state & PERF_ATTACH_TASK) && record->pid != (u32)current->pid)
		cpu->stats.strangers++;
	/* Where the interrupt comes right at the overflow, the driver of a processor has just added up to there. */
	later = local64_read(&event->hw.prev_count) - record->value;
	local64_sub(later, &event->count);
	stop = overflow(event, &data, regs);
	local64_add(later, &event->count);
	return stop;
}

static void drain_one(struct emu_cpu *cpu, struct emu_cpu_area *area, const struct emu_record *record)
{
	struct perf_event *event = NULL;

	if (record->counter < EMU_COUNTERS)
		event = cpu->events[record->counter];
	if (!event || area->counters[record->counter].generation != record->generation) {
		cpu->stats.orphaned++;
		return;
	}
	if (cpu->throttled >> record->counter & 1) {
		cpu->stats.throttled++;
		return;
	}
	if (deliver(cpu, event, record)) {
		cpu->throttled |= 1u << record->counter;
		event->pmu->stop(event, 0);
	} else if (event->hw.sample_period != area->counters[record->counter].period) {
		/* Frequency mode: the perf core chose another period. */
		area->counters[record->counter].period = event->hw.sample_period;
		EMU_CONFIG();
	}
}

static int drain(unsigned int cmd, struct pt_regs *regs)
{
	struct emu_cpu *cpu = this_cpu_ptr(&emu_cpus);
	int this = smp_processor_id();
	struct emu_cpu_area *area = emu_area(this);
	u64 tail = area->tail, head = READ_ONCE(area->head);

	if (head == tail)
		return NMI_DONE;
	/* Ends at the head it found, or its own records would keep a short period going for ever. */
	emu_freeze();
	cpu->draining = true;
	cpu->regs = *regs;
	cpu->stats.nmis++;
	for (; tail != head; tail++) {
		drain_one(cpu, area, emu_record(this, tail));
		WRITE_ONCE(area->tail, tail + 1);
	}
	cpu->draining = false;
	emu_unfreeze();
	return NMI_HANDLED;
}

/* Raises an NMI on this CPU and waits for it; interrupts are off, so nothing else can come between. */
void emu_drain_request(void)
{
	struct emu_cpu_area *area = emu_area(smp_processor_id());
	u64 head = READ_ONCE(area->head);
	int patience = PATIENCE;

	if (head == READ_ONCE(area->tail))
		return;
	apic->send_IPI(smp_processor_id(), NMI_VECTOR);
	while ((s64)(READ_ONCE(area->tail) - head) < 0 && --patience)
		cpu_relax();
	if (!patience)
		this_cpu_inc(emu_cpus.stats.late);
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	emu_drain_request();
	if (!this_cpu_read(emu_cpus.sampling))
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime((u64)emu_drain_us * NSEC_PER_USEC));
	return HRTIMER_RESTART;
}

void emu_drain_timer(bool on)
{
	struct hrtimer *timer = this_cpu_ptr(&emu_cpus.timer);

	/* Switched off by the tick itself: this may be called from the tick, which cannot wait for itself. */
	if (on && !hrtimer_active(timer))
		hrtimer_start(timer, ns_to_ktime((u64)emu_drain_us * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED_HARD);
}

static ssize_t stat_show(struct device *device, struct device_attribute *attribute, char *page);

#define STAT(_name) static struct device_attribute stat_##_name = __ATTR(_name, 0444, stat_show, NULL)
STAT(delivered);
STAT(orphaned);
STAT(throttled);
STAT(strangers);
STAT(nmis);
STAT(late);
STAT(written);
STAT(overflows);
STAT(lost_full);
STAT(lost_dropped);
STAT(lost_stopped);
STAT(anomalies);

static ssize_t stat_show(struct device *device, struct device_attribute *attribute, char *page)
{
	u64 sum = 0;
	int cpu;

	if (attribute == &stat_anomalies)
		return sysfs_emit(page, "%llu\n", emu_header()->anomalies);
	for_each_online_cpu(cpu) {
		struct emu_stats *stats = &per_cpu(emu_cpus, cpu).stats;
		struct emu_cpu_area *area = emu_area(cpu);

		sum += attribute == &stat_delivered ? stats->delivered :
		       attribute == &stat_orphaned ? stats->orphaned :
		       attribute == &stat_throttled ? stats->throttled :
		       attribute == &stat_strangers ? stats->strangers :
		       attribute == &stat_nmis ? stats->nmis :
		       attribute == &stat_late ? stats->late :
		       attribute == &stat_written ? area->head :
		       attribute == &stat_overflows ? area->overflows :
		       attribute == &stat_lost_full ? area->lost_full :
		       attribute == &stat_lost_dropped ? area->lost_dropped : area->lost_stopped;
	}
	return sysfs_emit(page, "%llu\n", sum);
}

static struct attribute *stat_attributes[] = {
	&stat_delivered.attr, &stat_orphaned.attr, &stat_throttled.attr, &stat_strangers.attr,
	&stat_nmis.attr, &stat_late.attr, &stat_written.attr, &stat_overflows.attr,
	&stat_lost_full.attr, &stat_lost_dropped.attr, &stat_lost_stopped.attr, &stat_anomalies.attr, NULL,
};
struct attribute_group emu_stats_group = { .name = "hbbp_emu", .attrs = stat_attributes };

/* perf_event_overflow is not exported; a kprobe on it gives its address and is taken away at once. */
static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "perf_event_overflow" };
	int error = register_kprobe(&probe);

	if (error)
		return error;
	overflow = (void *)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

int emu_drain_init(void)
{
	int cpu, error = find_overflow();

	if (error)
		return error;
	for_each_possible_cpu(cpu) {
		struct hrtimer *timer = &per_cpu(emu_cpus, cpu).timer;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
		hrtimer_setup(timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
		hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
		timer->function = tick;
#endif
	}
	return register_nmi_handler(NMI_LOCAL, drain, 0, "hbbp_emu");
}

void emu_drain_exit(void)
{
	unregister_nmi_handler(NMI_LOCAL, "hbbp_emu");
}
