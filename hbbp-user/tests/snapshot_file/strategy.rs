//! Snapshots of every shape that [`Snapshot::check`] accepts, for property tests.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use hbbp_user::addr::{ImageAddr, Va};
use hbbp_user::snapshot::run::Counter;
use hbbp_user::snapshot::{
    BranchCount, Event, EventIdx, EventUnit, Interval, IpCount, KernelTextSource, Losses, Mapping, Module,
    ModuleIdx, ModuleKind, Period, Process, ProcessIdx, Run, Snapshot, StreamCount, Symbol, Text,
};

/// A consistent snapshot with a few rows of everything.
pub(crate) fn snapshot() -> impl Strategy<Value = Snapshot> {
    (1_u32..4, 1_u32..4, 1_u32..3).prop_flat_map(|(n_modules, n_processes, n_events)| {
        let n = |n: u32| usize::try_from(n).unwrap();
        let run = run(n(n_events));
        let modules = vec(module(), n(n_modules));
        let processes = vec(process(n_modules), n(n_processes));
        let text = vec(text(n_modules), 0..6).prop_map(|mut text| {
            text.sort_by_key(|t| (t.module, t.start, t.since));
            text
        });
        let intervals = vec(interval(n_events, n_processes), 0..3);
        let losses = btree_map(".{0,12}", any::<u64>(), 0..4).prop_map(Losses);
        (run, modules, processes, text, intervals, losses).prop_map(
            |(run, modules, processes, text, intervals, losses)| Snapshot {
                run,
                modules,
                processes,
                text,
                intervals,
                losses,
            },
        )
    })
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
    )
        .prop_map(
            |(words, numbers, kernel_text, kernel_build_id, events, notes)| Run {
                tool_version: words.0,
                host: words.1,
                cpu_model: words.2,
                kernel_release: words.3,
                kernel_build_id,
                n_cpus: numbers.0,
                started: numbers.1,
                duration: numbers.2,
                scope: words.4,
                events,
                kernel_text,
                notes,
                own_cpu: numbers.3,
                own_memory: numbers.4,
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
        any::<u64>().prop_map(Period::Frequency)
    ];
    let counter = (
        option::of(any::<u32>()),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        option::of(any::<u64>()),
    )
        .prop_map(|(cpu, count, enabled, running, runs)| Counter {
            cpu,
            count,
            enabled,
            running,
            runs,
        });
    (
        ".{0,8}",
        unit,
        any::<bool>(),
        any::<u8>(),
        period,
        any::<u64>(),
        vec(counter, 0..4),
    )
        .prop_map(
            |(name, unit, branch_stack, precise, period, runs, counters)| Event {
                name,
                unit,
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

fn process(n_modules: u32) -> impl Strategy<Value = Process> {
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
    (any::<u32>(), any::<u32>(), ".{0,8}", vec(mapping, 0..5)).prop_map(
        |(tgid, exec_id, comm, mut mappings)| {
            mappings.sort_by_key(|m| (m.start, m.from));
            Process {
                tgid,
                exec_id,
                comm,
                mappings,
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
    let key = move || (0..n_events, 0..n_processes);
    let ip = (key(), any::<u64>(), any::<bool>(), any::<u64>(), any::<u64>()).prop_map(
        |((event, process), ip, exact, hits, weight)| IpCount {
            event: EventIdx(event),
            process: ProcessIdx(process),
            ip: Va(ip),
            exact,
            hits,
            weight,
        },
    );
    let weight = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
    let stream = (
        key(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        weight,
        any::<u64>(),
    )
        .prop_map(
            |((event, process), start, end, hits, weight, cycles)| StreamCount {
                event: EventIdx(event),
                process: ProcessIdx(process),
                start: Va(start),
                end: Va(end),
                hits,
                weight,
                cycles,
            },
        );
    let branch = (
        key(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
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
        );
    (
        any::<u64>(),
        any::<u64>(),
        vec(ip, 0..8),
        vec(stream, 0..4),
        vec(branch, 0..4),
    )
        .prop_map(|(start, end, ips, streams, branches)| Interval {
            start,
            end,
            ips,
            streams,
            branches,
        })
}
