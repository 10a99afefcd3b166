// SPDX-License-Identifier: GPL-2.0
/*
 * The face to the perf core: one PMU with instructions retired, near taken branches, cycles and classes of instructions,
 * encoded and shown in sysfs as the core PMU of an Intel processor is, so that tools need no special case.
 */
#include "driver.h"

#define ENCODING_MASK	0xffff	/* event and umask */

DEFINE_PER_CPU(struct emu_cpu, emu_cpus);
bool emu_mark_events;

static struct pmu emu_pmu;

/* The generic events that perf(1) knows by name; the upper half of config names the PMU. */
static u32 emu_generic_event(u64 config)
{
	switch (config & PERF_HW_EVENT_MASK) {
	case PERF_COUNT_HW_CPU_CYCLES:
		return EMU_EVENT_CYCLES;
	case PERF_COUNT_HW_INSTRUCTIONS:
		return EMU_EVENT_INSTRUCTIONS;
	case PERF_COUNT_HW_BRANCH_INSTRUCTIONS:
		return EMU_EVENT_BRANCHES;
	default:
		return 0;
	}
}

/* Encodings that Intel's tables give to the events, by generation (github.com/intel/perfmon). */
static u32 emu_event(const struct perf_event_attr *attr)
{
	if (attr->type == PERF_TYPE_HARDWARE)
		return emu_generic_event(attr->config);
	switch (attr->config & ENCODING_MASK) {
	case 0x00c0:	/* INST_RETIRED.ANY_P */
	case 0x01c0:	/* INST_RETIRED.PREC_DIST up to Skylake */
	case 0x0100:	/* INST_RETIRED.PREC_DIST since Ice Lake */
		return EMU_EVENT_INSTRUCTIONS;
	case 0x20c4:	/* BR_INST_RETIRED.NEAR_TAKEN */
	case 0xc0c4:	/* the same on E-cores */
	case 0xfbc4:	/* the same since Panther Lake */
		return EMU_EVENT_TAKEN;
	case 0x003c:	/* CPU_CLK_UNHALTED.THREAD_P */
		return EMU_EVENT_CYCLES;
	/* Classes of instructions, as a Skylake has them. */
	case 0x81d0:	/* MEM_INST_RETIRED.ALL_LOADS */
		return EMU_EVENT_LOADS;
	case 0x82d0:	/* MEM_INST_RETIRED.ALL_STORES */
		return EMU_EVENT_STORES;
	case 0x21d0:	/* MEM_INST_RETIRED.LOCK_LOADS */
		return EMU_EVENT_LOCKED;
	case 0x01c4:	/* BR_INST_RETIRED.CONDITIONAL */
		return EMU_EVENT_CONDITIONAL;
	case 0x10c4:	/* BR_INST_RETIRED.NOT_TAKEN */
		return EMU_EVENT_NOT_TAKEN;
	case 0x02c4:	/* BR_INST_RETIRED.NEAR_CALL */
		return EMU_EVENT_CALLS;
	case 0x08c4:	/* BR_INST_RETIRED.NEAR_RETURN */
		return EMU_EVENT_RETURNS;
	case 0x02c0:	/* INST_RETIRED.NOP */
		return EMU_EVENT_NOPS;
	default:
		return 0;
	}
}

static u32 emu_rings(struct perf_event *event)
{
	u32 rings = 0;

	if (!event->attr.exclude_user)
		rings |= EMU_RING_USER;
	if (!event->attr.exclude_kernel)
		rings |= EMU_RING_KERNEL;
	return rings;
}

static u32 emu_branch_rings(struct perf_event *event)
{
	u32 rings = 0;

	if (event->attr.branch_sample_type & PERF_SAMPLE_BRANCH_USER)
		rings |= EMU_RING_USER;
	if (event->attr.branch_sample_type & PERF_SAMPLE_BRANCH_KERNEL)
		rings |= EMU_RING_KERNEL;
	return rings ? rings : EMU_RING_USER | EMU_RING_KERNEL;
}

static int emu_event_init(struct perf_event *event)
{
	u64 kinds = PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_KERNEL | PERF_SAMPLE_BRANCH_HV |
		    PERF_SAMPLE_BRANCH_ANY | PERF_SAMPLE_BRANCH_NO_FLAGS | PERF_SAMPLE_BRANCH_NO_CYCLES;

	if (event->attr.type != emu_pmu.type && event->attr.type != PERF_TYPE_HARDWARE)
		return -ENOENT;
	if (!emu_event(&event->attr))
		return -ENOENT;
	/* The emulated PMU knows how many of a class a block has, and not which of them is the n-th. */
	if (emu_event(&event->attr) >= EMU_EVENT_CLASSES && is_sampling_event(event))
		return -EOPNOTSUPP;
	if (event->attr.precise_ip > emu_header()->max_precise)
		return -EOPNOTSUPP;
	if (event->attr.precise_ip && !is_sampling_event(event))
		return -EINVAL;
	/* Records wait for the driver: the registers are no longer those of the sample, and so would be the stack. */
	if (event->attr.sample_type & PERF_SAMPLE_CALLCHAIN)
		return -EOPNOTSUPP;
	/* Only the whole history of branches is recorded; kinds of branches cannot be selected. */
	if (has_branch_stack(event) && (event->attr.branch_sample_type & ~kinds))
		return -EOPNOTSUPP;
	if (has_branch_stack(event) && !(event->attr.branch_sample_type & PERF_SAMPLE_BRANCH_ANY))
		return -EOPNOTSUPP;
	return 0;
}

/*
 * The machine's own work (its driver, the eBPF programs it calls) is not counted, as a real PMU stands
 * still while its interrupt is handled. Where the reference follows the events, it stands still too.
 */
void emu_freeze(void)
{
	struct emu_cpu *cpu = this_cpu_ptr(&emu_cpus);

	if (cpu->frozen++)
		return;
	if (emu_mark_events && cpu->sampling)
		EMU_STOP();
	EMU_FREEZE();
}

void emu_unfreeze(void)
{
	struct emu_cpu *cpu = this_cpu_ptr(&emu_cpus);

	if (--cpu->frozen)
		return;
	EMU_UNFREEZE();
	if (emu_mark_events && cpu->sampling)
		EMU_START();
}

void emu_start(struct perf_event *event, int flags)
{
	struct emu_cpu *cpu = this_cpu_ptr(&emu_cpus);
	struct emu_cpu_area *area = emu_area(smp_processor_id());
	struct emu_counter *counter = &area->counters[event->hw.idx];
	struct hw_perf_event *hw = &event->hw;

	if (!(hw->state & PERF_HES_STOPPED))
		return;
	hw->state = 0;
	cpu->throttled &= ~(1u << hw->idx);
	counter->event = event->pmu == emu_clock ? EMU_EVENT_TIMER : emu_event(&event->attr);
	/* Time passes in both rings; what an event of the clock excludes is left out when it is delivered. */
	counter->rings = event->pmu == emu_clock ? EMU_RING_USER | EMU_RING_KERNEL : emu_rings(event);
	counter->precise = event->attr.precise_ip;
	counter->period = is_sampling_event(event) ? hw->sample_period : 0;
	counter->left = local64_read(&hw->period_left);
	if (!counter->left || counter->left > counter->period)
		counter->left = counter->period;
	counter->generation = ++cpu->generation;
	local64_set(&hw->prev_count, 0);
	if (has_branch_stack(event))
		area->branch_rings = emu_branch_rings(event);
	if (is_sampling_event(event) && cpu->sampling++ == 0) {
		emu_drain_timer(true);
		if (emu_mark_events && !cpu->frozen)
			EMU_START();
	}
	EMU_CONFIG();
}

/* Adds what the counter's area shows since the last time. */
static void emu_update(struct perf_event *event)
{
	struct emu_counter *counter = &emu_area(smp_processor_id())->counters[event->hw.idx];
	u64 before;

	before = local64_xchg(&event->hw.prev_count, counter->value);
	local64_add(counter->value - before, &event->count);
	local64_set(&event->hw.period_left, counter->left);
}

void emu_stop(struct perf_event *event, int flags)
{
	struct emu_cpu *cpu = this_cpu_ptr(&emu_cpus);
	struct emu_counter *counter = &emu_area(smp_processor_id())->counters[event->hw.idx];

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	/* Switching it off reads it out: in two steps, the events between them would be counted twice or lost. */
	counter->event = 0;
	EMU_CONFIG();
	emu_update(event);
	if (is_sampling_event(event) && --cpu->sampling == 0) {
		if (emu_mark_events)
			EMU_STOP();
		emu_drain_timer(false);
	}
	/* What the counter left in the ring still belongs to this event and this task. */
	if (is_sampling_event(event) && !cpu->draining)
		emu_drain_request();
}

/* There is one branch stack: events that want different branches in it take turns, as on hardware. */
static bool same_branches(struct emu_cpu *cpu, struct perf_event *event)
{
	int slot;

	for (slot = 0; slot < EMU_COUNTERS; slot++) {
		struct perf_event *other = cpu->events[slot];

		if (other && has_branch_stack(other) && has_branch_stack(event) &&
		    emu_branch_rings(other) != emu_branch_rings(event))
			return false;
	}
	return true;
}

int emu_add(struct perf_event *event, int flags)
{
	struct emu_cpu *cpu = this_cpu_ptr(&emu_cpus);
	int slot;

	if (!same_branches(cpu, event))
		return -EAGAIN;
	for (slot = 0; slot < EMU_COUNTERS; slot++)
		if (!cpu->events[slot])
			break;
	if (slot == EMU_COUNTERS)
		return -EAGAIN;
	cpu->events[slot] = event;
	event->hw.idx = slot;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		emu_start(event, PERF_EF_RELOAD);
	perf_event_update_userpage(event);
	return 0;
}

void emu_del(struct perf_event *event, int flags)
{
	emu_stop(event, PERF_EF_UPDATE);
	this_cpu_ptr(&emu_cpus)->events[event->hw.idx] = NULL;
	perf_event_update_userpage(event);
}

void emu_read(struct perf_event *event)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	EMU_READ();
	emu_update(event);
}

static ssize_t encoding_show(struct device *device, struct device_attribute *attribute, char *page)
{
	struct perf_pmu_events_attr *event = container_of(attribute, struct perf_pmu_events_attr, attr);

	return sysfs_emit(page, "%s\n", event->event_str);
}

/* Names of events may have dots, as those of Intel's lists do. */
#define EVENT(_name, _shown, _string) \
	static struct perf_pmu_events_attr event_##_name = { \
		.attr = { .attr = { .name = _shown, .mode = 0444 }, .show = encoding_show }, \
		.event_str = _string, \
	}

EVENT(instructions, "instructions", "event=0xc0");
EVENT(branches_taken, "branches_taken", "event=0xc4,umask=0x20");
EVENT(loads, "mem_inst_retired.all_loads", "event=0xd0,umask=0x81");
EVENT(stores, "mem_inst_retired.all_stores", "event=0xd0,umask=0x82");
EVENT(locked, "mem_inst_retired.lock_loads", "event=0xd0,umask=0x21");
EVENT(conditional, "br_inst_retired.conditional", "event=0xc4,umask=0x01");
EVENT(not_taken, "br_inst_retired.not_taken", "event=0xc4,umask=0x10");
EVENT(calls, "br_inst_retired.near_call", "event=0xc4,umask=0x02");
EVENT(returns, "br_inst_retired.near_return", "event=0xc4,umask=0x08");
EVENT(nops, "inst_retired.nop", "event=0xc0,umask=0x02");

static struct attribute *event_attributes[] = {
	&event_instructions.attr.attr,
	&event_branches_taken.attr.attr,
	&event_loads.attr.attr,
	&event_stores.attr.attr,
	&event_locked.attr.attr,
	&event_conditional.attr.attr,
	&event_not_taken.attr.attr,
	&event_calls.attr.attr,
	&event_returns.attr.attr,
	&event_nops.attr.attr,
	NULL,
};
static struct attribute_group events_group = { .name = "events", .attrs = event_attributes };

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(umask, "config:8-15");
static struct attribute *format_attributes[] = { &format_attr_event.attr, &format_attr_umask.attr, NULL };
static struct attribute_group format_group = { .name = "format", .attrs = format_attributes };

static ssize_t branches_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return sysfs_emit(page, "%u\n", emu_header()->depth);
}
static ssize_t max_precise_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return sysfs_emit(page, "%u\n", emu_header()->max_precise);
}
static DEVICE_ATTR_RO(branches);
static DEVICE_ATTR_RO(max_precise);
static struct attribute *caps_attributes[] = { &dev_attr_branches.attr, &dev_attr_max_precise.attr, NULL };
static struct attribute_group caps_group = { .name = "caps", .attrs = caps_attributes };

static const struct attribute_group *groups[] = {
	&events_group, &format_group, &caps_group, &emu_stats_group, NULL,
};

static struct pmu emu_pmu = {
	.module = THIS_MODULE,
	.task_ctx_nr = perf_hw_context,
	.attr_groups = groups,
	.event_init = emu_event_init,
	.add = emu_add,
	.del = emu_del,
	.start = emu_start,
	.stop = emu_stop,
	.read = emu_read,
};

int emu_pmu_register(const char *name, int type)
{
	return perf_pmu_register(&emu_pmu, name, type);
}

void emu_pmu_unregister(void)
{
	perf_pmu_unregister(&emu_pmu);
}
