#!/usr/bin/env python3
"""Compares profiles of `hbbp-sys --bursts`, and the clock of the same runs, with exact counts of programs that nothing was tuned on.

Run as root, with valgrind and objdump: unseen.py HBBP_SYS SECONDS [NAME..]. Each program is the distribution's, dynamic and movable.
Exact counts are callgrind's of two rounds less those of one; while it is measured, it has more rounds than it comes to.
Both have the same choice of functions by CPU features (GLIBC_TUNABLES, OPENSSL_ia32cap), without AVX.
Printed are, in percent, half the sum of the differences between shares (total variation distance) of executed instructions of all
files, by mnemonic and by basic block: of the clock, as the report has it (`--rule time`), and of bursts. Then what became of the
samples of bursts. Standard library only."""

import collections
import json
import os
import subprocess
import sys
import tempfile
import time

from bursts import blocks, disassembled, distance

ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-BMI2,-RTM",
    # No AVX, AVX2, BMI, ADX, SHA and what is newer.
    "OPENSSL_ia32cap": "~0x1000000010000000:~0xffffffffffffffff",
    "LC_ALL": "C",
}

PYTHON = """import json, re, sys
for turn in range(int(sys.argv[1])):
    words = [str(i * 7919 % 10007 + turn) for i in range(3000)]
    table = {}
    for word in words:
        table[word] = table.get(word, 0) + len(re.findall('[1-4]+', word))
    text = json.dumps(sorted(table.items()))
    assert json.loads(text)
"""
PERL = """my %h; for my $turn (1..$ARGV[0]) { for (1..20000) { my $w = $_ * 7919 % 10007; $h{$w} = substr(($h{$w} // '') . chr(97 + $_ % 26), -9); }
my @found = sort grep { /ab+c?|[x-z]{2}/ } values %h; }"""
TABLE = """create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
insert into t select i, hex(i * 7919 % 10007) || 'x', i * 0.5 from n;
create index u on t(b);
"""
QUERIES = """select count(*), sum(c), max(b) from t where b like '%3%';
select a % 13, count(distinct b), avg(c) from t group by 1 order by 2 desc;
"""


def function(n):
    return f"int f{n}(int *a, int b) {{ int s = {n}; for (int i = 0; i < b; i++) s += a[i] * {n % 17 + 1} % (b + {n % 7 + 1}) ^ s >> {n % 5}; return s; }}\n"


class Programs:
    """The words of each program for a number of rounds."""

    def __init__(self, folder):
        self.folder = folder
        self.text = self.written("text", "".join(f"{i * i % 9973} {i:x} the line of number {i}\n" for i in range(20000)))

    def written(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def gzip(self, rounds):
        return ["/usr/bin/gzip", "-9", "-c"] + [self.text] * rounds

    def sqlite3(self, rounds):
        return ["/usr/bin/sqlite3", ":memory:", ".read " + self.written("sql", TABLE + QUERIES * rounds)]

    def python3(self, rounds):
        return ["/usr/bin/python3", "-S", "-E", self.written("load.py", PYTHON), str(rounds)]

    def cc1(self, rounds):
        name = subprocess.run(["gcc", "-print-prog-name=cc1"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        source = self.written("source.c", "".join(function(n) for n in range(40 * rounds)))
        return [name, "-quiet", "-O2", "-o", "/dev/null", source]

    def openssl(self, rounds):
        return ["/usr/bin/openssl", "dgst", "-sha512"] + [self.text] * rounds

    def xz(self, rounds):
        return ["/usr/bin/xz", "-3", "-c"] + [self.text] * rounds

    def perl(self, rounds):
        return ["/usr/bin/perl", "-e", PERL, str(rounds)]


# More than any of them comes to while it is measured, but for cc1: it parses all before it optimises any.
MANY = {"cc1": 400, "sqlite3": 200000, "python3": 100000, "perl": 100000}
NAMES = ["gzip", "sqlite3", "python3", "cc1", "openssl", "xz", "perl"]


def callgrind(words, folder, environment):
    """Executions of each instruction, by file and address."""
    out = os.path.join(folder, "callgrind")
    run = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--dump-line=no", "--callgrind-out-file=" + out]
    subprocess.run(run + words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    counts, names, address, file, is_call = collections.Counter(), {}, 0, "", False
    with open(out, errors="replace") as lines:
        for line in lines:
            if line.startswith(("ob=", "cob=")):
                # A name is written where it comes first, which may be a call.
                number, _, name = line.split("=", 1)[1].strip().partition(" ")
                named = names.setdefault(number, os.path.realpath(name))
                file = named if line.startswith("ob=") else file
            elif line.startswith("calls="):
                is_call = True
            elif line[0] in "+-*0123456789":
                place, executions = line.split()[:2]
                # Relative to the line before, unless it says otherwise (Callgrind format specification).
                address = address if place == "*" else address + int(place, 0) if place[0] in "+-" else int(place, 0)
                if not is_call:
                    counts[file, address] += int(executions)
                is_call = False
    return counts


def exact(program, folder, environment):
    one, two = (callgrind(program(rounds), folder, environment) for rounds in (1, 2))
    return {place: n - one[place] for place, n in two.items() if n > one[place]}


def recorded(hbbp, seconds, words, folder, environment):
    """A profile of the program at work."""
    profile = os.path.join(folder, "profile")
    load = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    time.sleep(1)
    try:
        record = [hbbp, "record", "--bursts", "--pid", str(load.pid), "--duration", str(seconds), "-o", profile]
        subprocess.run(record, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        load.kill()
        load.wait()
    return profile


def counted(hbbp, profile, rule):
    """What a profile says of each instruction, by file and address."""
    export = [hbbp, "export", profile, "--format", "counts", "--source", "hybrid", "--rule", rule]
    text = subprocess.run(export, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    counts, file = collections.Counter(), ""
    for line in text.splitlines():
        if line.startswith("M "):
            file = os.path.realpath(line.split()[1])
        elif line and line[0] in "0123456789abcdef":
            address, n = line.split()[:2]
            counts[file, int(address, 16)] += float(n)
    return counts


class Code:
    """Mnemonics and blocks of the files that ran."""

    def __init__(self, files):
        self.instructions = {file: disassembled(file) for file in files}
        self.blocks = {file: blocks(of_file) for file, of_file in self.instructions.items()}

    def known(self, counts):
        return {place: n for place, n in counts.items() if place[1] in self.instructions.get(place[0], ())}

    def mnemonic(self, place):
        return self.instructions[place[0]][place[1]].mnemonic

    def block(self, place):
        return place[0], self.blocks[place[0]][place[1]]


def main():
    hbbp, seconds = sys.argv[1], int(sys.argv[2])
    environment = dict(os.environ, **ENVIRONMENT)
    print(f"{'program':10}{'clock':>15}{'bursts':>15}   samples of bursts")
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(folder)
        for name in sys.argv[3:] or NAMES:
            program = getattr(programs, name)
            truth = exact(program, folder, environment)
            profile = recorded(hbbp, seconds, program(MANY.get(name, 30000)), folder, environment)
            code = Code({file for file, _ in truth if os.path.isfile(file)})
            truth = code.known(truth)
            figures = ""
            for rule in ("time", "balanced"):
                ours = code.known(counted(hbbp, profile, rule))
                figures += "".join(f"{distance(ours, truth, group):{width}.1f}" for group, width in ((code.mnemonic, 8), (code.block, 7)))
            report = subprocess.run([hbbp, "report", profile, "--format", "json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            report = json.loads(report)
            notes = [warning["text"] for warning in report["warnings"] if "bursts" in warning["text"] or "a burst" in warning["text"] or "their bursts" in warning["text"]]
            known = 100 * sum(ours.values()) / max(sum(counted(hbbp, profile, "balanced").values()), 1)
            print(f"{name:10}{figures}   {report['accounting']['stacks_only']} with streams, {known:.0f} % in known files", flush=True)
            for note in notes[1:]:
                print(f"           {note}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
