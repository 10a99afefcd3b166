#!/usr/bin/env python3
"""Daemons beside busy processes and attacks for an hour, and a verdict.

Run as root: soak.py --program target/release/hbbp-sys --interval 5 --interval 60 --beside 'COMMAND'

Each --beside is a shell command that a user without rights runs again and again; --beside-root the same as root, once a minute.
They find the ports of the daemons in $PORTS and their directories in $DIRS. Each check prints a line; the exit code is 1 if
one failed. Standard library only."""

import argparse
import calendar
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

NOBODY = 65534
NAME = re.compile(r"(\d{8}T\d{6}\.\d{3})Z\+(\d+\.\d{3})s\.(\d+)(?:-(\d+))?\.hbbp$")
# Half of the busy processes compute; the others start programs all the time.
COMPUTE = "while :; do :; done"
START = "while :; do /bin/true; done"
TICKS = os.sysconf("SC_CLK_TCK")


def as_nobody():
    # Each session has its part of the CPUs, whatever the nice values of its processes are (sched(7), "The autogroup feature").
    try:
        with open("/proc/self/autogroup", "w") as autogroup:
            autogroup.write("19")
    except OSError:
        pass
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.nice(19)


class Daemon:
    """One daemon, what it says, and what was seen of it each minute."""

    def __init__(self, program, interval, port, more):
        self.interval = interval
        self.port = port
        self.dir = tempfile.mkdtemp(prefix=f"soak-{interval}s-")
        self.log = open(self.dir + ".log", "w+")
        args = ["daemon", "--dir", self.dir, "--interval", str(interval), "--listen", f"127.0.0.1:{port}"]
        self.child = subprocess.Popen([program, *args, *more], stderr=self.log, stdout=subprocess.DEVNULL)
        self.marks = []
        self.threads = {}
        # Length, size and notes to come of each segment of one interval, before it is merged, and where links of the long ones are.
        self.seen = {}
        self.linked = tempfile.mkdtemp(prefix=f"soak-{interval}s-long-")

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def mark(self):
        """Memory in MiB, CPU time as the kernel counts it, and the metrics."""
        with open(f"/proc/{self.child.pid}/status") as status:
            memory = int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024
        try:
            metrics = self.metrics()
        except OSError as error:
            metrics = {}
            print(f"  {self.interval} s: no metrics: {error}", flush=True)
        self.marks.append((time.time(), memory, cpu_of_tree(self.child.pid), metrics))

    def mark_threads(self):
        """Notes the CPU time of the threads, in seconds by name."""
        tasks = f"/proc/{self.child.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat") as stat:
                name, fields = stat.read().split("(", 1)[1].rsplit(") ", 1)
            times = fields.split()
            self.threads[name] = self.threads.get(name, 0.0) + sum(map(int, times[11:13])) / TICKS

    def look_at_segments(self, program, reader):
        """Notes new segments. What long ones say is read beside the rest: it takes minutes on a busy machine."""
        for begin, length, first, last, path, size in segments(self.dir):
            if first != last or first in self.seen or time.time() - 1 <= begin + length:
                continue
            notes = None
            if 1.2 * self.interval < length:
                link = os.path.join(self.linked, os.path.basename(path))
                os.link(path, link)
                notes = reader.submit(notes_of, program, link)
            self.seen[first] = (length, size, notes)

    def stop(self):
        """Ends it as a service manager does; returns the exit code and when it was asked to."""
        asked = time.time()
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(timeout=120), asked

    def said(self):
        self.log.seek(0)
        return self.log.read()


def cpu_of_tree(pid):
    """Seconds of CPU time of a process and its descendants, also of those that were reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            below = sum(cpu_of_tree(int(child)) for child in children.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS + below


def segments(folder):
    """Start, length and numbers of each segment, oldest first, with its path and size."""
    found = []
    for name in os.listdir(folder):
        match = NAME.match(name)
        if match:
            path = os.path.join(folder, name)
            start = time.strptime(match[1][:15], "%Y%m%dT%H%M%S")
            begin = calendar.timegm(start) + int(match[1][16:]) / 1000
            size = os.path.getsize(path)
            if size:
                found.append((begin, float(match[2]), int(match[3]), int(match[4] or match[3]), path, size))
    return sorted(found)


def report(program, path):
    done = subprocess.run([program, "report", path, "--format", "json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def notes_of(program, path):
    """What a profile warns of, as text."""
    found = report(program, path)
    return json.dumps(found and found["warnings"])


class Verdict:
    def __init__(self):
        self.failed = 0

    def __call__(self, holds, what):
        self.failed += not holds
        print(f"{'ok    ' if holds else 'FAILED'} {what}", flush=True)


def judge(verdict, program, daemon, ended):
    code, asked = ended
    who = f"{daemon.interval} s:"
    said = daemon.said()
    verdict(code == 0, f"{who} exit code {code}")
    all_segments = segments(daemon.dir)
    numbers = [n for it in all_segments for n in range(it[2], it[3] + 1)]
    verdict(numbers == list(range(len(numbers))), f"{who} {len(numbers)} intervals, none is missing")
    last = all_segments[-1]
    verdict(abs(last[0] + last[1] - asked) < 3, f"{who} last interval ends {last[0] + last[1] - asked:+.2f} s from SIGTERM")

    seen = daemon.seen.values()
    long = [notes.result() for _, _, notes in seen if notes]
    told = [notes for notes in long if "interval" in notes and "longer" in notes]
    lengths = sorted(length for length, _, _ in seen)
    middle = lengths[len(lengths) // 2] if lengths else 0
    verdict(len(long) == len(told), f"{who} {len(long)} of {len(lengths)} intervals longer than 1.2 times, {len(told)} say so; median {middle:.1f} s, longest {lengths[-1]:.1f} s")

    whole = report(program, daemon.dir)
    verdict(whole is not None, f"{who} directory can be reported")
    if whole:
        unexplained = int(whole["accounting"]["unexplained"])
        verdict(unexplained == 0, f"{who} sums close: unexplained {unexplained}, reached {whole['accounting']['reached']}")

    marks = [mark for mark in daemon.marks if mark[3]]
    (began, _, cpu_began, first), (end, _, cpu_end, last_metrics) = marks[0], marks[-1]
    of = lambda metrics, name: metrics.get(f"hbbp_{name}_total", 0.0)
    growth = lambda name: of(last_metrics, name) - of(first, name)
    cpus = os.cpu_count()
    budget = next(value for name, value in last_metrics.items() if name.startswith("hbbp_cpu_budget"))
    user, sampling = growth("own_cpu_seconds"), growth("own_sampling_seconds")
    share = (user + sampling) / growth("measured_seconds") / cpus
    by_kernel = (cpu_end - cpu_began) / (end - began) / cpus
    missed = of(last_metrics, "daemon_budget_missed")
    verdict(share <= budget or missed, f"{who} took {share:.4%} (user space {user:.2f} s, sampling and records {sampling:.2f} s), the kernel says {by_kernel:.4%} of user space; budget {budget:.2%}, missed {missed:.0f} times")
    if by_kernel:
        verdict(abs(cpu_end - cpu_began - user) < 0.15 * user + 2, f"{who} user space took {cpu_end - cpu_began:.2f} s by the kernel, {user:.2f} s by the daemon")

    threads = sorted(daemon.threads.items(), key=lambda it: -it[1])
    print(f"       {who} " + ", ".join(f"thread {name} {time:.2f} s" for name, time in threads if 0.1 <= time))

    quarter = len(daemon.marks) // 4
    if quarter:
        least = lambda part: min(mark[1] for mark in part)
        second, final = least(daemon.marks[quarter : 2 * quarter]), least(daemon.marks[-quarter:])
        verdict(final <= 1.25 * second + 4, f"{who} resident memory {second:.1f} MiB, then {final:.1f} MiB")
    covered = last[0] + last[1] - all_segments[0][0]
    size = sum(it[5] for it in all_segments)
    written = sum(size for _, size, _ in seen)
    print(f"       {who} {written / 2**20:.1f} MiB were written: {written / covered * 86400 / 1e9:.2f} GB a day unmerged")
    print(f"       {who} {size / 2**20:.1f} MiB in {covered:.0f} s: {size / covered * 86400 / 1e9:.2f} GB a day as it is now (of {len(all_segments)} segments)")
    for line in said.splitlines()[-12:]:
        print(f"       {who} said: {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="hbbp-sys")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--interval", type=int, action="append", help="of one daemon, in seconds (default: 5 and 60)")
    parser.add_argument("--port", type=int, default=9470, help="of the metrics of the first daemon")
    parser.add_argument("--busy", type=int, default=20, help="busy processes of a user without rights")
    parser.add_argument("--beside", action="append", default=[], metavar="COMMAND")
    parser.add_argument("--beside-root", action="append", default=[], metavar="COMMAND")
    parser.add_argument("--with", dest="more", action="append", default=[], help="a further option of the daemons")
    args = parser.parse_args()
    daemons = [Daemon(args.program, interval, args.port + n, args.more) for n, interval in enumerate(args.interval or [5, 60])]
    env = dict(os.environ, PORTS=" ".join(str(it.port) for it in daemons), DIRS=" ".join(it.dir for it in daemons))
    time.sleep(5)
    shell = lambda command, **more: subprocess.Popen(
        ["sh", "-c", command], env=env, cwd="/tmp", start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    beside = [shell(COMPUTE if n % 2 else START, preexec_fn=as_nobody) for n in range(args.busy)]
    again = [f"while :; do {command}; sleep 1; done" for command in args.beside]
    beside += [shell(command, preexec_fn=as_nobody) for command in again]
    beside += [shell(f"while :; do sleep 60; {command}; done") for command in args.beside_root]
    reader = concurrent.futures.ThreadPoolExecutor(1)
    try:
        start = time.time()
        next_mark = start
        while time.time() < start + args.seconds:
            if next_mark <= time.time():
                next_mark += 60
                for daemon in daemons:
                    daemon.mark()
            for daemon in daemons:
                daemon.look_at_segments(args.program, reader)
            time.sleep(2)
        for daemon in daemons:
            daemon.mark()
            daemon.mark_threads()
        ended = [daemon.stop() for daemon in daemons]
    finally:
        for child in beside:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for daemon in daemons:
            if daemon.child.poll() is None:
                daemon.child.kill()
    verdict = Verdict()
    for daemon, end in zip(daemons, ended):
        judge(verdict, args.program, daemon, end)
    sys.exit(1 if verdict.failed else 0)


if __name__ == "__main__":
    main()
