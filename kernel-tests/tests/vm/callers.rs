//! Callers in the kernel: a read through the page cache and a datagram over the loopback device, whose loops are
//! charged with what they call, compared with exact counts.
//!
//! The clock of the guest counts instructions, each round of a repeated string instruction by itself, so that time is known
//! from exact executions. In mm/filemap.c of Linux 6.12, `filemap_read` takes the folios of the file in one call of
//! `filemap_get_pages` (line 2649). Its inner loop has one iteration for each (2680 to 2710), which marks the folio
//! (2691) and copies it (2700). `generic_file_read_iter` calls it last and jumps there, so that the call is that of `vfs_read`.
//!
//! A datagram of 60,000 bytes is two fragments of pages: in net/ipv4/ip_output.c the loop of `__ip_append_data` (lines 1080 to 1336),
//! which `ip_make_skb` calls (1579), goes round once for each, and copies it from the program. In net/core/datagram.c the loop of
//! `__skb_datagram_iter` (414 to 448) copies each to the program (434). In between the sender runs the receiving softirq, when
//! `__dev_queue_xmit` lets them come again.

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use serde_json::Value;

use crate::support;

/// Reads of 64 KiB, the folios of each, and the words that are copied.
const READS: f64 = 30_000.0;
const FOLIOS: f64 = 16.0;
const WORDS: f64 = 8192.0;

/// Nanoseconds between two samples of the clock. A sample with its chain takes some microseconds of kernel time, the more the
/// deeper it is: at 50 us, what finds the folios seemed to take 1.7 % more of the time than it does.
const CALLERS: [&str; 2] = ["--callers", "--time=150001"];

fn measured(workload: &str, callers: [&str; 2], command: &str) -> Option<Measured> {
    let machine = support::machine("6.12")?;
    let mut setup = Setup::new(support::hardware_profile("ideal"));
    setup.options = callers.map(str::to_owned).to_vec();
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, workload);
    Some(measure_command(machine, &["/bin/busybox", "sh", "-c", command], &setup).unwrap())
}

/// What a report says of loops and of the calls by the time of what they called, each the hottest first.
struct Told {
    all: Vec<Value>,
    calls: Vec<Value>,
}

impl Told {
    fn of(measured: &Measured) -> Self {
        let report = support::printed(measured, "report", &["--view", "loops", "--top", "all"]);
        let report = &report["loops"][0];
        let [all, calls] =
            [&report["loops"], &report["calls"]["sites"]].map(|it| it.as_array().unwrap().clone());
        Self { all, calls }
    }
}

/// Exact instructions of functions of the kernel.
fn exact(measured: &Measured, functions: &[&str]) -> f64 {
    let groups = measured.functions.groups.iter();
    let of = groups.filter(|group| matches!(&group.key[..], [ring, _, name] if ring == "kernel" && functions.contains(&name.as_str())));
    of.map(|group| group.instructions.reference).sum()
}

fn time(of: &Value) -> f64 {
    of["value"].as_f64().unwrap()
}

/// The largest time of what the calls of a function called.
fn most(calls: &[Value], function: &str, among: impl Fn(&Value) -> bool) -> f64 {
    let own = calls.iter().filter(|it| it["function"] == function && among(it));
    own.map(|it| time(&it["time"])).fold(0.0, f64::max)
}

/// Exact parts of the time below the call in `vfs_read`: copying, finding the folios, and the inner loop of `filemap_read`, whose
/// own instructions are `own`, with what it calls.
fn exact_parts(measured: &Measured, own: f64) -> [f64; 3] {
    // What is copied, round by round, what finds the folios, and what marks them.
    let copied = exact(
        measured,
        &["copy_page_to_iter", "_copy_to_iter", "rep_movs_alternative"],
    );
    let copied = copied + READS * (WORDS - FOLIOS);
    // Each folio is taken within a section of RCU (`page_ref_add_unless` in include/linux/page_ref.h).
    let finding = [
        "filemap_get_pages",
        "filemap_get_read_batch",
        "__rcu_read_lock",
        "__rcu_read_unlock",
    ];
    let found = exact(measured, &finding);
    let marked = exact(measured, &["folio_mark_accessed"]);
    let reading = exact(
        measured,
        &[
            "filemap_read",
            "generic_file_read_iter",
            "touch_atime",
            "atime_needs_update",
        ],
    );
    let whole = copied + found + marked + reading;
    let looped = copied + marked * (FOLIOS - 1.0) / FOLIOS + own;
    [copied / whole, found / whole, looped / whole]
}

#[test]
#[ignore = "runs in --all"]
fn loops_of_a_read_through_the_page_cache_have_their_callers() {
    let command = format!(
        "busybox mkdir /cached; busybox mount -t ramfs none /cached; \
         busybox dd if=/dev/zero of=/cached/file bs=65536 count=1; reads /cached/file {READS}"
    );
    let Some(measured) = measured("reads.c", CALLERS, &command) else {
        return;
    };
    let Told { all, calls } = &Told::of(&measured);
    let hottest = |function: &str| all.iter().find(|it| it["function"] == function).unwrap();
    let (inner, user) = (hottest("filemap_read"), hottest("read_all"));
    let inside = all.iter().position(|it| it == inner);

    let [copied, found, looped] = exact_parts(&measured, time(&inner["amount"]));
    let called = most(calls, "vfs_read", |_| true);
    let copying = most(calls, "filemap_read", |it| {
        it["loop"].as_u64() == inside.map(|n| n as u64)
    });
    let finding = most(calls, "filemap_read", |it| it["loop"].is_null());
    let looping = time(&inner["inclusive_time"]);
    let samples = called / 150_001.0;
    println!(
        "{} samples below vfs_read; part of it, exact, standard error",
        samples.round()
    );
    for (name, part, exact) in [
        ("copy", copying / called, copied),
        ("find", finding / called, found),
        ("loop", looping / called, looped),
    ] {
        let error = (exact * (1.0 - exact) / samples).sqrt();
        println!("{name} {part:.4} {exact:.4} {error:.4}");
        assert!(
            (part - exact).abs() <= 4.0 * error + 0.01,
            "{name}: {part} of {exact}"
        );
    }

    // The loop has one caller, and is a part of what the loop of the program called.
    let callers = inner["callers"].as_array().unwrap();
    println!(
        "loop of filemap_read: {} of {READS} times, callers {callers:#?}",
        inner["invocations"]["value"]
    );
    assert!(0.99 * looping <= most(callers, "vfs_read", |_| true));
    assert!(called <= time(&user["inclusive_time"]));
    assert_eq!(
        (user["ring"].as_str(), user["parent"].as_u64()),
        (Some("user"), None)
    );
}

/// Datagrams, their fragments, and the words of each.
const DATAGRAMS: f64 = 40_000.0;
const FRAGMENTS: f64 = 2.0;
const DATAGRAM_WORDS: f64 = 7500.0;

/// Call chains of the network are deep: at 50 us between two samples, unwinding would take a third of the kernel's time.
const RARER: [&str; 2] = ["--callers", "--time=250007"];

/// Loops of a datagram over the loopback device have their callers.
#[test]
#[ignore = "runs in --all"]
fn loops_of_a_loopback_datagram_have_their_callers() {
    let command = format!("busybox ifconfig lo 127.0.0.1 up; datagrams {DATAGRAMS}");
    let Some(measured) = measured("datagrams.c", RARER, &command) else {
        return;
    };
    let Told { all, calls } = &Told::of(&measured);
    let hottest = |function: &str| all.iter().find(|it| it["function"] == function).unwrap();

    // Each fragment is copied in one loop from the program and in another to it, with one caller each.
    for (function, caller) in [
        ("__ip_append_data", "ip_make_skb"),
        ("__skb_datagram_iter", "skb_copy_datagram_iter"),
    ] {
        let it = hottest(function);
        let figure = |name: &str| ["value", "std_error"].map(|part| it[name][part].as_f64().unwrap());
        let (invocations, trips) = (figure("invocations"), figure("trips"));
        let callers = it["callers"].as_array().unwrap();
        println!("loop of {function}: {invocations:?} times, {trips:?} rounds, callers {callers:?}");
        for ([estimate, error], exact) in [(invocations, DATAGRAMS), (trips, FRAGMENTS)] {
            assert!((estimate - exact).abs() <= 4.0 * error + 0.01 * exact);
        }
        assert!(0.99 * time(&it["inclusive_time"]) <= most(callers, caller, |_| true));
    }

    // What is copied in and out, compared with the loop of the program that waits.
    let waits = all
        .iter()
        .filter(|it| it["function"] == "echo" && !it["parent"].is_null());
    let waited: f64 = waits.map(|it| time(&it["time"])).sum();
    let samples = |time: f64| time / 250_007.0;
    let user = measured.functions.groups.iter();
    let user = user.filter(|group| group.key.last().is_some_and(|name| name == "echo"));
    let user: f64 = user.map(|group| group.instructions.reference).sum();
    let words = DATAGRAMS * (DATAGRAM_WORDS - FRAGMENTS);
    for (function, copier) in [
        ("ip_generic_getfrag", "_copy_from_iter"),
        ("__skb_datagram_iter", "_copy_to_iter"),
    ] {
        let copied = most(calls, function, |_| true);
        let exact = words + exact(&measured, &[copier]) + exact(&measured, &["rep_movs_alternative"]) / 2.0;
        let (part, expected) = (copied / waited, exact / user);
        let error = (1.0 / samples(copied) + 1.0 / samples(waited)).sqrt();
        println!(
            "{copier}: {part:.4} of the time in the program, {expected:.4} exactly; standard error {:.1} %",
            100.0 * error
        );
        // A sample with its chain takes 12,000 instructions of each 250,000 of kernel code.
        assert!((part / expected - 1.0).abs() < 4.0 * error + 0.06);
    }

    // The sender is charged with the receiving softirq.
    let softirq = hottest("handle_softirqs");
    let callers = softirq["callers"].as_array().unwrap();
    let received = time(&softirq["inclusive_time"]);
    let sent = most(calls, "__sys_sendto", |_| true);
    let queued = most(calls, "__dev_queue_xmit", |_| true);
    println!("softirq {received}, of {queued} below the device, of {sent} below the call; {callers:?}");
    assert!(0.95 * received <= most(callers, "do_softirq.part.0", |_| true));
    assert!(0.95 * received <= queued && queued < sent);
}
