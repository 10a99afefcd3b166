//! Where instructions wait, a clock alone shows for which: loops of known latencies.
//!
//! Shares of the samples of one function do not depend on how much of a CPU it gets.

use std::path::Path;

use serde_json::Value;

use super::load::built;
use super::{kernel, run};

/// Each function is a loop around one instruction that takes most of its time, with others after it that take none.
const SOURCE: &str = r#"#include <stdlib.h>
#include <string.h>
#define LOOP(name, ...) \
__attribute__((noinline)) static void name(unsigned long n, void *p) { \
    unsigned long a = (unsigned long)p, b = 3, c = 7, d = 0; \
    __asm__ volatile("1:\n" __VA_ARGS__ "dec %[n]\njnz 1b\n" \
        : [n] "+r"(n), "+a"(a), "+b"(b), "+c"(c), "+d"(d) : : "r8", "r9", "r11", "memory", "cc"); }
LOOP(division, "xor %%edx, %%edx\n or $1, %%rax\n div %%rcx\n add %%rax, %%rbx\n xor %%rbx, %%r8\n lea 1(%%rbx,%%r8), %%r9\n")
LOOP(products, "imul %%rax, %%rax\n add $1, %%rbx\n imul %%rax, %%rax\n add $1, %%r8\n imul %%rax, %%rax\n add $1, %%r9\n")
LOOP(misses, "mov (%%rax), %%rax\n add %%rax, %%rbx\n add $1, %%r8\n xor %%r8, %%r9\n")
LOOP(locked, "lock xadd %%rbx, (%%rax)\n add $1, %%rbx\n add $1, %%r8\n xor %%r8, %%r9\n")
LOOP(calls, "mov $39, %%eax\n syscall\n add $1, %%rbx\n add $1, %%r8\n xor %%r8, %%r9\n")
enum { WORDS = 1 << 22 };
/* One cycle through all words in an order that no prefetcher foresees. */
static void *ring(void)
{
    unsigned long **all = malloc(WORDS * sizeof *all), state = 1, i, j;
    for (i = 0; i < WORDS; i++)
        all[i] = (unsigned long *)(all + i);
    for (i = WORDS - 1; i; i--) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        j = (state >> 33) % i;
        unsigned long *t = all[i];
        all[i] = all[j];
        all[j] = t;
    }
    return all;
}
int main(int argc, char **argv)
{
    static unsigned long word;
    unsigned long n = strtoul(argv[2], NULL, 0);
    if (!strcmp(argv[1], "division"))
        division(n, (void *)-1ul);
    if (!strcmp(argv[1], "products"))
        products(n, (void *)3ul);
    if (!strcmp(argv[1], "misses"))
        misses(n, ring());
    if (!strcmp(argv[1], "locked"))
        locked(n, &word);
    if (!strcmp(argv[1], "calls"))
        calls(n, NULL);
    return 0;
}
"#;

/// The samples of user code in a function by mnemonic, and those that lie on each.
fn by_mnemonic(profile: &str, function: &str) -> Vec<(String, f64, f64)> {
    let filter = format!("function={function}");
    let words = ["report", profile, "--format", "json", "--top", "all"];
    let asked = [
        "--rows",
        "mnemonic",
        "--filter",
        &filter,
        "--values",
        "executions,samples",
    ];
    let output = run(&[&words[..], &asked].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let of = |name: &str| row["user"][name].as_f64().unwrap();
        (
            row["key"][0].as_str().unwrap().to_owned(),
            of("amount"),
            of("samples"),
        )
    })
    .collect()
}

/// A loop, and where its time is.
struct Waiting {
    function: &'static str,
    rounds: &'static str,
    mnemonic: &'static str,
    /// The least share of its time.
    least: f64,
}

/// The profile of a loop.
fn recorded(folder: &Path, program: &Path, loop_and_rounds: [&str; 2]) -> String {
    let profile = folder.join("profile").to_str().unwrap().to_owned();
    let words = [
        "record",
        "-o",
        profile.as_str(),
        "--event",
        "cpu-clock",
        "--period",
        "200003",
        "--",
        program.to_str().unwrap(),
    ];
    let recorded = run(&[&words[..], &loop_and_rounds].concat());
    assert!(recorded.status.success(), "{recorded:?}");
    profile
}

/// Records a loop, and checks that its time belongs to one mnemonic, at which no sample lies.
#[track_caller]
fn assert_waits(program: &Path, waiting: &Waiting) {
    let Waiting {
        function,
        rounds,
        mnemonic,
        least,
    } = *waiting;
    let folder = tempfile::tempdir().unwrap();
    let profile = recorded(folder.path(), program, [function, rounds]);
    let rows = by_mnemonic(&profile, function);
    println!("{function}: {rows:?}");
    let all: f64 = rows.iter().map(|(_, amount, _)| amount).sum();
    let landed: f64 = rows.iter().map(|(.., samples)| samples).sum();
    let (_, amount, at) = rows.iter().find(|(name, ..)| name == mnemonic).unwrap();
    // The first and the last instruction of a function can belong to its caller or callee.
    let elsewhere = (all - landed).abs();
    assert!(
        100.0 <= all && elsewhere <= 3.0 + 0.02 * all,
        "{all} samples, {landed} landed"
    );
    let share = amount / all;
    assert!(least <= share, "{mnemonic} has {share} of the time");
    assert!(
        5.0 * at < *amount,
        "{at} samples lie at {mnemonic}, which has {amount}"
    );
}

#[test]
fn time_is_of_the_instruction_that_waits() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), "waits", SOURCE, &[]);
    for (function, rounds, mnemonic, least) in [
        ("division", "60000000", "DIV", 0.4),
        ("products", "60000000", "IMUL", 0.6),
        ("misses", "2000000", "MOV", 0.6),
        ("locked", "30000000", "XADD", 0.6),
    ] {
        let waiting = Waiting {
            function,
            rounds,
            mnemonic,
            least,
        };
        assert_waits(&program, &waiting);
    }
}

#[test]
fn time_of_a_system_call_is_of_both_rings() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), "waits", SOURCE, &[]);
    let profile = recorded(folder.path(), &program, ["calls", "6000000"]);
    let rows = by_mnemonic(&profile, "calls");
    println!("{rows:?}");
    let all: f64 = rows.iter().map(|(_, amount, _)| amount).sum();
    let (_, amount, at) = rows.iter().find(|(name, ..)| name == "SYSCALL").unwrap();
    assert!(
        20.0 <= all && 0.6 * all <= *amount,
        "SYSCALL has {amount} of {all}"
    );
    assert!(5.0 * at < *amount, "{at} samples lie at SYSCALL");
    // Interrupts are off from SYSCALL on and until SYSRET, so no sample lies at the kernel's instructions there.
    let words = [
        "report",
        profile.as_str(),
        "--format",
        "json",
        "--top",
        "all",
        "--rows",
        "mnemonic",
    ];
    let values = ["--values", "executions,samples"];
    let output = run(&[&words[..], &values].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for mnemonic in ["SWAPGS", "SYSRETQ"] {
        let rows = report["mix"]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"][0] == mnemonic).unwrap();
        println!("{row}");
        assert!(10.0 < row["kernel"]["amount"].as_f64().unwrap(), "{row}");
        assert_eq!(row["kernel"]["samples"].as_f64().unwrap(), 0.0, "{row}");
    }
}
