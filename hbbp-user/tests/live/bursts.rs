//! Bursts of live processes: the branches that programs are known to take, and why bursts end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hbbp_bursts::{Followed, Followers};
use hbbp_collect::Scope;
use hbbp_collect::bursts::Bursts;
use hbbp_ebpf::burst::BurstStats;
use hbbp_emulate::{End, Limits};
use object::{Object as _, ObjectSymbol as _};

use serde_json::Value;

use super::load::{Load, built};
use super::{kernel, report_by, run};

const LIMITS: Limits = Limits {
    branches: 256,
    steps: 1 << 14,
};

/// Follows bursts of a process until there are this many, or a minute has passed. The sums of what was counted close.
fn follow(pid: u32, n: usize) -> (Vec<Followed>, BurstStats) {
    let mut bursts = Bursts::open(&Scope::Process(pid)).unwrap();
    bursts.enable().unwrap();
    let (mut followers, mut followed) = (Followers::default(), Vec::new());
    let began = Instant::now();
    while followed.len() < n && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
        for burst in bursts.read() {
            assert_eq!(burst.head.tgid, pid);
            let end = followers.follow(&burst.head, &burst.pages, LIMITS);
            let end = end.unwrap();
            bursts.want(pid, end.wanted.iter().copied()).unwrap();
            followed.push(end);
        }
    }
    let stats = bursts.stats().unwrap();
    println!("{stats:?}");
    let walked = aya::programs::loaded_programs().flatten();
    let walked = walked.filter(|program| program.name_as_str() == Some("on_burst"));
    println!(
        "the verifier walked {:?}",
        walked.map(|it| it.verified_instruction_count()).max()
    );
    assert!(n <= followed.len(), "{} bursts", followed.len());
    assert_eq!(
        stats.runs,
        stats.handed + stats.full + stats.compatible + stats.outside
    );
    assert_eq!(
        stats.pages,
        stats.pages_handed + stats.pages_absent + stats.pages_full
    );
    (followed, stats)
}

fn load(folder: &Path, name: &str, source: &str) -> Load {
    let program = built(folder, name, source, &["-O1", "-fstack-protector-all"]);
    Load(Command::new(program).stdout(Stdio::null()).spawn().unwrap())
}

/// How often bursts ended for each reason.
fn reasons(followed: &[Followed]) -> BTreeMap<End, usize> {
    let mut reasons = BTreeMap::new();
    for burst in followed {
        *reasons.entry(burst.end).or_default() += 1;
    }
    reasons
}

/// A loop of three branches. Its canary is in the thread's own data, so the base of FS is right; it counts in memory that is read
/// with the sample.
const LOOP: &str = r#"
volatile long before[4096], count, after[4096];
__attribute__((noinline)) void part(void)
{
    volatile char canary[16];
    canary[0] = 1;
    __asm__ volatile("");
}
__asm__(".globl turn, call_part, again, other, done\n"
    "turn: testb $1, count(%rip)\n"
    "other: jnz done\n"
    "call_part: call part\n"
    "done: addq $1, count(%rip)\n"
    "again: jmp turn\n");
void turn(void);
int main(void)
{
    turn();
}
"#;

/// Checks the branches of a burst of the loop, by the distance of these symbols: the program may lie anywhere.
fn check_loop(burst: &Followed, address: &dyn Fn(&str) -> u64) {
    let part = address("part");
    let calls = burst.branches.iter().map(|branch| branch.to);
    let mut calls = calls.filter(|to| to & 0xfff == part & 0xfff);
    let moved = calls.next().unwrap().wrapping_sub(part);
    let (again, done) = (address("again"), address("done"));
    let known = BTreeSet::from([
        (address("other"), done),
        (address("call_part"), part),
        (again, address("turn")),
    ]);
    let branches = burst.branches.iter();
    let branches = branches.map(|it| (it.from.wrapping_sub(moved), it.to.wrapping_sub(moved)));
    let branches: Vec<(u64, u64)> = branches.collect();
    let others = branches.iter().filter(|branch| !known.contains(branch));
    others.for_each(|(_, to)| assert_eq!(*to, done, "the part returns"));
    let rounds = branches.split(|(from, _)| *from == again);
    let rounds: Vec<usize> = rounds.map(<[_]>::len).collect();
    for pair in rounds[1..rounds.len() - 1].windows(2) {
        assert_eq!(
            pair[0] + pair[1],
            3,
            "one jumps over the call, one calls and returns"
        );
    }
}

#[test]
fn bursts_take_the_branches_of_the_program() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let load = load(folder.path(), "loop", LOOP);
    let (followed, stats) = follow(load.0.id(), 40);
    assert_eq!(
        reasons(&followed),
        BTreeMap::from([(End::Branches, followed.len())])
    );
    assert!(
        2 * stats.handed < stats.pages,
        "more than the stack was asked for"
    );
    let bytes = fs::read(folder.path().join("loop")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let address = |name: &str| file.symbol_by_name(name).unwrap().address();
    for burst in &followed[20..] {
        assert_eq!(burst.late, 0, "what it needs is known by now");
        assert!(0.0 < burst.cycles && 256 < burst.steps);
        check_loop(burst, &address);
    }
}

#[test]
fn bursts_that_end_early_say_why() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Most of its time is user code, and each round makes a system call.
    let source = "#include <unistd.h>\n\
                  #include <sys/syscall.h>\n\
                  int main(void) { for (;;) { for (volatile int i = 0; i < 20; i++); syscall(SYS_getppid); } }\n";
    let calling = load(folder.path(), "calling", source);
    let (followed, _) = follow(calling.0.id(), 20);
    assert_eq!(
        reasons(&followed),
        BTreeMap::from([(End::SystemCall, followed.len())])
    );
    drop(calling);
    // An area of 512 bytes in one instruction is not emulated.
    let source = "static char area[512] __attribute__((aligned(16)));\n\
                  int main(void) { for (;;) { for (volatile int i = 0; i < 9; i++); \
                  __asm__ volatile(\"fxsave %0\" : \"=m\"(area)); } }\n";
    let saving = load(folder.path(), "saving", source);
    let (followed, _) = follow(saving.0.id(), 20);
    assert_eq!(
        reasons(&followed),
        BTreeMap::from([(End::NotEmulated, followed.len())])
    );
}

/// Executed instructions of a function or label of the loop, and their standard error.
fn executed(report: &Value, function: &str) -> (f64, f64) {
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    let mut row = rows.filter(|row| row["key"][0] == function);
    let total = row.next().map(|row| &row["total"]);
    let total = total.unwrap();
    let figure = |name: &str| total[name].as_f64().unwrap();
    (figure("amount"), figure("std_error"))
}

/// As a user has it. Of the loop, each block but two runs once in a round, and these two in every second one.
#[test]
fn a_report_has_executions_of_user_code_and_time_of_the_kernel() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let load = load(folder.path(), "loop", LOOP);
    let profile = folder.path().join("profile").to_str().unwrap().to_owned();
    let pid = load.0.id().to_string();
    let recorded = run(&[
        "record",
        "--bursts",
        "--pid",
        &pid,
        "--duration",
        "5",
        "-o",
        &profile,
    ]);
    assert!(recorded.status.success(), "{recorded:?}");
    let report = report_by(&profile, "function");
    assert_eq!(report["mix"]["unit"], "relative_executions");
    assert_eq!(report["tables"][0]["unit"], "time_weighted_samples");
    assert_eq!(report["tables"][0]["filters"][0], "ring=kernel");
    assert_eq!(report["accounting"]["unexplained"], 0);
    let said = report["warnings"].to_string();
    assert!(
        said.contains("have their full length") && said.contains("unit.bursts"),
        "{said}"
    );
    let (turns, _) = executed(&report, "turn");
    for (label, expected) in [("other", 1.0), ("done", 1.0), ("again", 1.0), ("call_part", 0.5)] {
        let (amount, error) = executed(&report, label);
        let ratio = amount / turns;
        println!("{label}: {ratio} ± {} for each turn", error / turns);
        assert!((ratio - expected).abs() < 2.0 * error / turns, "{label}: {ratio}");
        // They are in the same bursts, whose first and last rounds are not whole.
        assert!((ratio - expected).abs() < 0.05, "{label}: {ratio}");
    }
    let required = |requirement: &str| run(&["report", &profile, "--require", requirement]);
    assert!(required("ring=user&&mnemonic=TEST>1%").status.success());
    let refused = required("mnemonic=TEST>1%");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("both rings"), "{why}");
    let annotated = run(&["annotate", &profile, "part"]);
    assert!(annotated.status.success(), "{annotated:?}");
    let text = String::from_utf8_lossy(&annotated.stdout);
    assert!(text.contains("relative executions"), "{text}");
}
