#!/usr/bin/env python3
"""Compares the share of time that the clock gives an instruction with the share that is saved by removing it.

Run as root, with a C compiler: removed.py target/release/hbbp-sys. For each loop it prints the percentages of the loop's time: what
removing the instruction saves, what spreading the samples evenly over the loop would give it ("before"), what the report gives
it ("after"), the samples behind it ("behind"), and whether all instructions of the loop wait for each other, so that their
latencies add up. CPU time is the least of several runs in turn, as neighbours only add to it. Standard library only."""

import json
import os
import resource
import subprocess
import sys
import tempfile

# Name, mnemonic and the one behind it, rounds, whether latencies add up, what the instruction is, and the loop with IT in its place.
LOOPS = [
    ("chained products", "IMUL", "ADD", 60e6, True, "imul %%rax, %%rax\\n", "IT add $1, %%rax\\n IT add $1, %%rax\\n IT add $1, %%rax\\n"),
    ("chained division", "DIV", "SUB", 40e6, True, "div %%rcx\\n", "xor %%edx, %%edx\\n or $-3, %%rax\\n IT sub %%rbx, %%rax\\n rol $1, %%rax\\n"),
    ("chained locked add", "XADD", "ADD", 20e6, True, "lock xadd %%rbx, (%%rsi)\\n", "IT add $1, %%rbx\\n imul %%rbx, %%rbx\\n"),
    ("chained misses", "MOV", "AND", 2e6, True, "mov (%%rdi), %%rdi\\n", "IT and $-8, %%rdi\\n add $0, %%rdi\\n"),
    ("division, the rest overlaps", "DIV", "ADD", 40e6, False, "div %%rcx\\n", "xor %%edx, %%edx\\n or $1, %%rax\\n IT add %%rax, %%rbx\\n imul %%rbx, %%r8\\n imul %%r8, %%r9\\n"),
    ("products, the rest overlaps", "IMUL", "ADD", 60e6, False, "imul %%rax, %%rax\\n", "IT add $1, %%rbx\\n IT add $1, %%r8\\n IT add $1, %%r9\\n"),
]
RUNS = 7
PERIOD = "200003"

SOURCE = """
#include <stdlib.h>
enum { WORDS = 1 << 22 };
static unsigned long word, *ring[WORDS];
__attribute__((noinline)) static void hot(unsigned long n, void *p)
{
    unsigned long a = 3, b = 3, c = 7;
    __asm__ volatile("1: BODY dec %[n]\\n jnz 1b\\n"
        : [n] "+r"(n), "+a"(a), "+b"(b), "+c"(c), "+D"(p) : "S"(&word) : "rdx", "r8", "r9", "memory", "cc");
}
int main(int argc, char **argv)
{
    unsigned long n = strtoul(argv[1], 0, 0), state = 1, i, j, *t;
    for (i = 0; i < WORDS; i++)
        ring[i] = (unsigned long *)(ring + i);
    for (i = WORDS - 1; i; i--) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        j = (state >> 33) % i;
        t = ring[i], ring[i] = ring[j], ring[j] = t;
    }
    if (!n)
        return 0;
    hot(n, ring);
    return 0;
}
"""


def build(folder, name, body):
    source, program = (os.path.join(folder, name + end) for end in (".c", ""))
    with open(source, "w") as file:
        file.write(SOURCE.replace("BODY", body))
    subprocess.run(["gcc", "-O1", "-fno-pie", "-no-pie", "-o", program, source], check=True)
    return program


def cpu_time(program, rounds):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([program, str(int(rounds))], check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def least(programs, rounds):
    """The least CPU time of each program's loop, without what comes before it."""
    runs = [[(cpu_time(program, rounds), cpu_time(program, 0)) for program in programs] for _ in range(RUNS)]
    return [min(run[n][0] for run in runs) - min(run[n][1] for run in runs) for n in range(len(programs))]


def profile_of(hbbp, folder, program, rounds):
    profile = os.path.join(folder, "profile")
    record = [hbbp, "record", "-o", profile, "--event", "cpu-clock", "--period", PERIOD, "--", program, str(int(rounds))]
    subprocess.run(record, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return profile


def shares(hbbp, profile, mnemonic, next_one):
    """The percentages of the loop that the report gives the mnemonic, and of samples at the one behind it; the loop's samples."""
    report = [hbbp, "report", profile, "--values", "samples", "--by", "mnemonic", "--filter", "function=hot", "--top", "all", "--format", "json"]
    rows = json.loads(subprocess.run(report, check=True, stdout=subprocess.PIPE).stdout)["mix"]["rows"]
    cells = {row["key"][0]: row["user"] for row in rows}
    whole, samples = (sum(cell[name] for cell in cells.values()) for name in ("amount", "samples"))
    return 100 * cells[mnemonic]["amount"] / whole, 100 * cells[next_one]["samples"] / samples, samples


def main():
    hbbp = os.path.abspath(sys.argv[1])
    print(f"{'loop':30}{'latencies':>11}{'saved %':>9}{'before %':>10}{'after %':>9}{'behind %':>10}{'samples':>9}")
    for name, mnemonic, next_one, rounds, adds_up, it, loop in LOOPS:
        with tempfile.TemporaryDirectory() as folder:
            programs = [build(folder, with_it, loop.replace("IT ", part)) for with_it, part in (("with", it), ("without", ""))]
            whole, rest = least(programs, rounds)
            profile = profile_of(hbbp, folder, programs[0], rounds)
            after, behind, samples = shares(hbbp, profile, mnemonic, next_one)
        instructions = loop.replace("IT ", it).count("\\n") + 2
        before = 100 * loop.replace("IT ", it).count(mnemonic.lower()) / instructions
        print(f"{name:30}{'add up' if adds_up else 'overlap':>11}{100 * (1 - rest / whole):9.1f}{before:10.1f}{after:9.1f}{behind:10.1f}{samples:9.0f}", flush=True)


main()
