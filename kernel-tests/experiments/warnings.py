#!/usr/bin/env python3
"""Counts the warnings of ten ordinary runs: those on the first screen, and all of them.

Run as root: warnings.py target/release/hbbp-sys. Prints a line for each run, and their sums. Standard library only."""

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


def main():
    program = sys.argv[1]
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    sums = [0, 0]
    try:
        for run in RUNS:
            words = [{"BUSY": str(busy.pid), "PROGRAM": program}.get(word, word) for word in run.split()]
            with tempfile.TemporaryDirectory() as folder:
                profile = os.path.join(folder, "profile")
                output([program, "record", "-o", profile, *words])
                screen = re.search(r"^Warnings \(\d+ of (\d+)\)", output([program, "report", profile]), re.M)
                everything = json.loads(output([program, "report", profile, "--format", "json"]))["warnings"]
            counts = [int(screen[1]) if screen else 0, len(everything)]
            sums = [a + b for a, b in zip(sums, counts)]
            ids = " ".join(warning["id"] for warning in everything)
            print(f"{counts[0]:>3} of {counts[1]:>2}  record {run}: {ids}", flush=True)
    finally:
        busy.kill()
    print(f"{sums[0]:>3} of {sums[1]:>2}  all")


main()
