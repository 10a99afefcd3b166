//! Snapshots of every shape that [`Snapshot::check`] accepts, for property tests.

use std::num::NonZeroU64;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::run::{Counter, CpuBudget, RunTime};
use hbbp_model::snapshot::{
    BranchCount, CgroupIdx, ChainCount, ClassCount, Event, EventIdx, EventUnit, HostFacts, InstructionClass,
    Interval, IpCount, KernelTextSource, Mapping, Module, ModuleIdx, ModuleKind, Overhead, Period, Process,
    ProcessIdx, Run, Snapshot, StaticBranch, StreamCount, Symbol, Text, Thread, Turns,
};

/// A consistent snapshot with a few rows of everything.
pub fn snapshot() -> impl Strategy<Value = Snapshot> {
    (1_u32..4, 1_u32..4, 1_u32..3, 0_u32..3).prop_flat_map(|(n_modules, n_processes, n_events, n_cgroups)| {
        let n = |n: u32| usize::try_from(n).unwrap();
        let run = run(n(n_events));
        let modules = vec(module(), n(n_modules));
        let processes = vec(process(n_modules, n_cgroups), n(n_processes));
        let cgroups = vec(".{0,8}", n(n_cgroups));
        let text = vec(text(n_modules), 0..6).prop_map(|mut text| {
            text.sort_by_key(|t| (t.module, t.start, t.since));
            text
        });
        let intervals = vec(interval(n_events, n_processes), 0..3);
        let losses = btree_map(".{0,12}", count(), 0..4).prop_map(|counts| counts.into_iter().collect());
        let branch = (0..n_modules, any::<u64>(), any::<bool>());
        let static_branches = vec(branch, 0..4).prop_map(static_branches);
        let code = (text, static_branches);
        (run, modules, processes, cgroups, code, intervals, losses).prop_map(
            |(run, modules, processes, cgroups, (text, static_branches), intervals, losses)| Snapshot {
                run,
                modules,
                processes,
                cgroups,
                static_branches,
                text,
                intervals,
                losses,
            },
        )
    })
}

fn static_branches(drawn: Vec<(u32, u64, bool)>) -> Vec<StaticBranch> {
    let branches = drawn.into_iter().map(|(module, addr, tracepoint)| StaticBranch {
        module: ModuleIdx(module),
        addr: ImageAddr(addr),
        tracepoint,
    });
    let mut branches: Vec<_> = branches.collect();
    branches.sort_unstable();
    branches
}

/// What one event counted of a class.
fn class_count() -> impl Strategy<Value = ClassCount> {
    let numbers = (
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
    );
    let turns = (0.0f64..1e18, -1e18f64..1e18, 0.0f64..1e18);
    (
        select(InstructionClass::ALL),
        any::<bool>(),
        ".{0,8}",
        numbers,
        turns,
    )
        .prop_map(
            |(
                class,
                kernel,
                event,
                (count, enabled, running, instructions, n),
                (count_squares, product, measure),
            )| {
                ClassCount {
                    class,
                    ring: if kernel { Ring::Kernel } else { Ring::User },
                    event,
                    count,
                    enabled,
                    running,
                    instructions,
                    turns: Turns {
                        n,
                        count: count_squares,
                        product,
                        measure,
                    },
                }
            },
        )
}

fn run(n_events: usize) -> impl Strategy<Value = Run> {
    let words = (".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}", ".{0,8}");
    let numbers = (
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
    );
    let kernel_text = prop_oneof![
        Just(KernelTextSource::None),
        Just(KernelTextSource::Kcore),
        Just(KernelTextSource::Probe),
        ".{0,8}".prop_map(KernelTextSource::Vmlinux),
    ];
    let build_id = vec(any::<u8>(), 0..20);
    (
        words,
        numbers,
        kernel_text,
        build_id,
        vec(event(), n_events),
        vec(".{0,8}", 0..3),
        vec(class_count(), 0..4),
    )
        .prop_map(
            |(words, numbers, kernel_text, kernel_build_id, events, notes, classes)| Run {
                tool_version: words.0,
                host: HostFacts {
                    name: words.1,
                    cpu_model: words.2,
                    kernel_release: words.3,
                    kernel_build_id,
                    n_cpus: numbers.0,
                },
                started: numbers.1,
                duration: numbers.2,
                scope: words.4,
                events,
                classes,
                kernel_text,
                without_executions: notes.concat(),
                unmeasured: notes.iter().map(|note| (note.clone(), numbers.2)).collect(),
                notes,
                overhead: Overhead {
                    cpu: numbers.3,
                    memory: numbers.4,
                    sampling: numbers.4 ^ numbers.3,
                    budget: (numbers.0 & 1 == 1).then_some(CpuBudget {
                        share: numbers.0,
                        programs: if numbers.0 & 2 == 0 {
                            RunTime::Estimated
                        } else {
                            RunTime::Measured
                        },
                    }),
                },
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    let unit = prop::sample::select(vec![
        EventUnit::Nanoseconds,
        EventUnit::Cycles,
        EventUnit::Instructions,
        EventUnit::TakenBranches,
        EventUnit::MicroOps,
        EventUnit::Other,
    ]);
    let period = prop_oneof![
        any::<u64>().prop_map(Period::Fixed),
        any::<u64>().prop_map(Period::Frequency),
        any::<[u64; 2]>().prop_map(|[shortest, longest]| Period::Between(shortest, longest))
    ];
    let counter = (
        option::of(any::<u32>()),
        count(),
        any::<u64>(),
        any::<u64>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    )
        .prop_map(
            |(cpu, count, enabled, running, runs, idle, steal, guest, due)| Counter {
                cpu,
                count,
                enabled,
                running,
                runs,
                idle,
                steal,
                guest,
                due,
            },
        );
    (
        ".{0,8}",
        unit,
        any::<bool>(),
        any::<u8>(),
        period,
        count(),
        vec(counter, 0..4),
    )
        .prop_map(
            |(name, unit, branch_stack, precise, period, runs, counters)| Event {
                name,
                unit,
                near_only: branch_stack,
                ring: [None, Some(Ring::Kernel), Some(Ring::User)][usize::from(precise % 3)],
                branch_stack,
                precise,
                period,
                runs,
                counters,
            },
        )
}

fn module() -> impl Strategy<Value = Module> {
    let kind = prop::sample::select(vec![
        ModuleKind::Kernel,
        ModuleKind::KernelModule,
        ModuleKind::Bpf,
        ModuleKind::Trampoline,
        ModuleKind::Elf64,
        ModuleKind::Elf32,
        ModuleKind::Vdso,
        ModuleKind::Anonymous,
    ]);
    let symbol = (any::<u64>(), any::<u64>(), ".{0,8}").prop_map(|(start, len, name)| Symbol {
        start: ImageAddr(start),
        len,
        name,
    });
    (".{0,8}", kind, vec(any::<u8>(), 0..20), vec(symbol, 0..5)).prop_map(
        |(name, kind, build_id, mut symbols)| {
            symbols.sort_by_key(|s| s.start);
            Module {
                name,
                kind,
                build_id,
                symbols,
            }
        },
    )
}

fn process(n_modules: u32, n_cgroups: u32) -> impl Strategy<Value = Process> {
    let mapping = (
        0..u64::MAX,
        any::<u64>(),
        0..n_modules,
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(|(start, len, module, image_start, from)| Mapping {
            start: Va(start),
            end: Va(start.saturating_add(len.max(1))),
            module: ModuleIdx(module),
            image_start: ImageAddr(image_start),
            from,
        });
    let cgroup = (0..=n_cgroups).prop_map(|n| n.checked_sub(1).map(CgroupIdx));
    let thread = option::of((any::<u32>(), ".{0,8}").prop_map(|(tid, name)| Thread { tid, name }));
    let numbers = (any::<u32>(), any::<u32>());
    (numbers, ".{0,8}", vec(mapping, 0..5), cgroup, thread).prop_map(
        |((tgid, exec_id), comm, mut mappings, cgroup, thread)| {
            mappings.sort_by_key(|m| (m.start, m.from));
            Process {
                tgid,
                exec_id,
                comm,
                mappings,
                cgroup,
                thread,
            }
        },
    )
}

fn text(n_modules: u32) -> impl Strategy<Value = Text> {
    (
        0..n_modules,
        0..u64::MAX - 100,
        vec(any::<u8>(), 0..40),
        any::<u32>(),
    )
        .prop_map(|(module, start, bytes, since)| Text {
            module: ModuleIdx(module),
            start: ImageAddr(start),
            bytes,
            since,
        })
}

fn interval(n_events: u32, n_processes: u32) -> impl Strategy<Value = Interval> {
    (
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
        vec(ip(n_events, n_processes), 0..8),
        vec(stream(n_events, n_processes), 0..4),
        vec(branch(n_events, n_processes), 0..4),
        vec(chain(n_events, n_processes), 0..4),
        vec(ip(n_events, n_processes), 0..4),
    )
        .prop_map(
            |(start, end, continues, ips, streams, branches, chains, refused)| Interval {
                start,
                end,
                continues,
                ips,
                streams,
                branches,
                chains,
                refused,
            },
        )
}

/// A count that some thousand times adds up to what a profile may hold ([`Snapshot::check_sums`]).
fn count() -> impl Strategy<Value = u64> {
    0..1_u64 << 50
}

fn chain(n_events: u32, n_processes: u32) -> impl Strategy<Value = ChainCount> {
    let key = (0..n_events, 0..n_processes);
    let addresses = (any::<u64>(), any::<u64>(), vec(any::<u64>(), 0..5));
    (key, addresses, count(), count()).prop_map(|((event, process), (ip, top, frames), hits, weight)| {
        ChainCount {
            event: EventIdx(event),
            process: ProcessIdx(process),
            ip: Va(ip),
            frames: frames.into_iter().map(Va).collect(),
            top: Va(top),
            hits,
            weight,
        }
    })
}

fn ip(n_events: u32, n_processes: u32) -> impl Strategy<Value = IpCount> {
    let key = (0..n_events, 0..n_processes);
    (key, any::<u64>(), any::<bool>(), count(), count()).prop_map(
        |((event, process), ip, exact, hits, weight)| IpCount {
            event: EventIdx(event),
            process: ProcessIdx(process),
            ip: Va(ip),
            exact,
            hits,
            weight,
        },
    )
}

fn stream(n_events: u32, n_processes: u32) -> impl Strategy<Value = StreamCount> {
    let weight = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
    (
        (0..n_events, 0..n_processes),
        any::<u64>(),
        any::<u64>(),
        proptest::option::of(any::<u64>()),
        count(),
        weight,
        count(),
    )
        .prop_map(
            |((event, process), start, end, source, hits, weight, cycles)| StreamCount {
                event: EventIdx(event),
                process: ProcessIdx(process),
                start: Va(start),
                end: Va(end),
                source: source.map(Va),
                hits,
                weight,
                cycles: NonZeroU64::new(cycles),
            },
        )
}

fn branch(n_events: u32, n_processes: u32) -> impl Strategy<Value = BranchCount> {
    (
        (0..n_events, 0..n_processes),
        any::<u64>(),
        any::<u64>(),
        count(),
        count(),
        proptest::option::of(count()),
    )
        .prop_map(
            |((event, process), from, to, hits, oldest, mispredicted)| BranchCount {
                event: EventIdx(event),
                process: ProcessIdx(process),
                from: Va(from),
                to: Va(to),
                hits,
                oldest,
                mispredicted,
            },
        )
}
