#!/usr/bin/env python3
"""Counts the warnings of ten ordinary runs: those on the first screen, and all of them.

Run as root: warnings.py target/release/hbbp-sys [OTHER ..]. Others report on the profiles that the first one records; programs without
a first screen print all warnings. Prints a line for each run, and the sums of each program. Standard library only."""

import json
import os
import re
import subprocess
import sys
import tempfile

# What people measure first: the machine, a part of it, a process, a command.
RUNS = [
    "--duration 2",
    "--duration 10",
    "--duration 5 --cpu 0",
    "--duration 5 --time",
    "--duration 5 --callers",
    "--duration 5 --per-thread",
    "--duration 5 --pid BUSY",
    "-- dd if=/dev/urandom of=/dev/null bs=4k count=60000",
    "-- find /usr -name *.so",
    "--all -- sha256sum PROGRAM",
]


def output(words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()


def on_the_screen(text):
    screen = re.search(r"^Warnings \((\d+) of \d+\)", text, re.M)
    every = re.search(r"^Warnings:\n((?:  .*\n)+)", text, re.M)
    return int(screen[1]) if screen else len(re.findall("^  - ", every[1], re.M)) if every else 0


def main():
    programs = sys.argv[1:]
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    sums = {program: [0, 0] for program in programs}
    try:
        for run in RUNS:
            words = [{"BUSY": str(busy.pid), "PROGRAM": programs[0]}.get(word, word) for word in run.split()]
            with tempfile.TemporaryDirectory() as folder:
                profile = os.path.join(folder, "profile")
                output([programs[0], "record", "-o", profile, *words])
                for program in programs:
                    everything = json.loads(output([program, "report", profile, "--format", "json"]))["warnings"]
                    counts = [on_the_screen(output([program, "report", profile])), len(everything)]
                    sums[program] = [a + b for a, b in zip(sums[program], counts)]
                    ids = " ".join(warning["id"] for warning in everything)
                    print(f"{counts[0]:>3} of {counts[1]:>2}  record {run}: {ids}", flush=True)
    finally:
        busy.kill()
    for program, counts in sums.items():
        print(f"{counts[0]:>3} of {counts[1]:>2}  all by {program}")


main()
