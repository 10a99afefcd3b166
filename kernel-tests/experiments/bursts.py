#!/usr/bin/env python3
"""Compares what emulated bursts and the clock say of a program's instructions with exact counts.

Run as root, with valgrind and objdump: bursts.py BURSTS SECONDS PROGRAM.., where BURSTS is the benchmark of that name
(`cargo bench -p hbbp-sys --bench bursts --no-run` prints its path), and each program is static, not movable, and takes the number of
its rounds as an argument. Exact counts are callgrind's of two rounds less those of one. Printed are, in percent, half the sum of
the differences between shares (total variation distance) of executed instructions, by mnemonic and by basic block: of the clock,
whose samples in a block are spread over it; of bursts that all take the same time for an instruction; and of bursts by the model of
a core. Standard library only."""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time

PREFIXES = {"rep", "repz", "repnz", "lock", "bnd", "notrack", "cs", "ds", "data16"}
Instruction = collections.namedtuple("Instruction", "length mnemonic target ends")


def disassembled(program):
    """All instructions by address, in order."""
    text = subprocess.run(["objdump", "-d", "-w", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s+([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*(.*)$", line)
        if not match:
            continue
        address, length, words = int(match[1], 16), len(match[2].split()), match[3].split()
        while len(words) > 1 and words[0] in PREFIXES:
            words.pop(0)
        mnemonic = words[0] if words else "(bad)"
        target = re.search(r"\b([0-9a-f]+) <", match[3])
        jumps = mnemonic.startswith(("j", "call", "loop"))
        ends = jumps or mnemonic.startswith(("ret", "hlt", "ud2", "syscall"))
        found[address] = Instruction(length, mnemonic, int(target[1], 16) if jumps and target else None, ends)
    return found


def blocks(instructions):
    """The block of each instruction, as the address that it begins at."""
    leaders = {it.target for it in instructions.values() if it.target}
    block_of, current, end, ended = {}, None, None, True
    for address, it in instructions.items():
        if ended or address != end or address in leaders:
            current = address
        block_of[address] = current
        end, ended = address + it.length, it.ends
    return block_of


def callgrind(program, rounds, folder):
    """Executions of each instruction of the program."""
    out = os.path.join(folder, "callgrind")
    run = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--callgrind-out-file=" + out, program, str(rounds)]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    counts, names, address = collections.Counter(), {}, 0
    is_ours = is_call = False
    with open(out, errors="replace") as lines:
        for line in lines:
            name = re.match(r"ob=\((\d+)\)(?: (.*))?$", line)
            if name:
                names.setdefault(name[1], name[2])
                is_ours = os.path.basename(names[name[1]] or "") == os.path.basename(program)
            elif line.startswith("calls="):
                is_call = True
            elif line[0] in "+-*0123456789":
                words = line.split()
                place = words[0]
                # Relative to the line before, unless it says otherwise (Callgrind format specification).
                address = address if place == "*" else address + int(place, 0) if place[0] in "+-" else int(place, 0)
                if is_ours and not is_call:
                    counts[address] += int(words[2])
                is_call = False
    return counts


def exact(program):
    with tempfile.TemporaryDirectory() as folder:
        one, two = (callgrind(program, rounds, folder) for rounds in (1, 2))
    return {address: n - one[address] for address, n in two.items() if n > one[address]}


def measured(bursts, seconds, program):
    """What the benchmark prints of the program at work, and the seconds of CPU time that it took."""
    load = subprocess.Popen([program, "1000000000"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        out = subprocess.run([bursts, str(load.pid), str(seconds)], check=True, stdout=subprocess.PIPE).stdout
    finally:
        load.kill()
        load.wait()
    return json.loads(out)


def streams(rows, weight, instructions):
    """Executions of each instruction in weighted streams."""
    counts = collections.Counter()
    for row in rows:
        address, last = row[0], row[1]
        while address <= last and address in instructions:
            counts[address] += row[weight]
            address += instructions[address].length
    return counts


def spread(samples, block_of):
    """Samples of each block, spread evenly over its instructions."""
    members, of_block = collections.defaultdict(list), collections.Counter()
    for address, block in block_of.items():
        members[block].append(address)
    for address, n in samples:
        if address in block_of:
            of_block[block_of[address]] += n
    return {it: n / len(members[block]) for block, n in of_block.items() for it in members[block]}


def distance(counts, truth, group):
    """The total variation distance of shares by a group, in percent."""
    sums = []
    for of in (counts, truth):
        by = collections.Counter()
        for address, n in of.items():
            by[group(address)] += n
        whole = sum(by.values()) or 1
        sums.append({key: n / whole for key, n in by.items()})
    ours, theirs = sums
    return 50 * sum(abs(ours.get(key, 0) - theirs.get(key, 0)) for key in ours.keys() | theirs.keys())


def main():
    bursts, seconds, programs = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    ways = ("clock", "bursts, equal", "bursts, model")
    print(f"{'program':10}" + "".join(f"{way:>16}" for way in ways) + f"{'bursts':>9}{'whole %':>9}{'steps':>7}{'late':>6}{'ns/step':>9}{'BPF us, 50/99 %':>17}")
    sums = [0.0] * 6
    for program in programs:
        program = os.path.abspath(program)
        instructions = disassembled(program)
        block_of, truth = blocks(instructions), exact(program)
        got = measured(bursts, seconds, program)
        counts = [spread(got["clock"], block_of)] + [streams(got["streams"], way, instructions) for way in (2, 3)][::-1]
        groups = (lambda at: instructions[at].mnemonic if at in instructions else None), block_of.get
        figures = [distance(of, truth, group) for of in counts for group in groups]
        sums = [sum + figure for sum, figure in zip(sums, figures)]
        shown = "".join(f"{figures[n]:>9.1f}{figures[n + 1]:>7.1f}" for n in (0, 2, 4))
        whole = 100 * got["ends"].get("Branches", 0) / max(got["bursts"], 1)
        took = "/".join(f"{ns / 1000:.0f}" for ns in got["took"][:2])
        per_step = got["emulation_ns"] / max(got["steps"], 1)
        print(f"{os.path.basename(program):10}{shown}{got['bursts']:9}{whole:9.0f}{got['steps'] / max(got['bursts'], 1):7.0f}{got['late'] / max(got['bursts'], 1):6.1f}{per_step:9.0f}{took:>17}", flush=True)
        print(f"           {got['ends']} {got['stats']}", file=sys.stderr)
    print(f"{'mean':10}" + "".join(f"{sums[n] / len(programs):>9.1f}{sums[n + 1] / len(programs):>7.1f}" for n in (0, 2, 4)))


if __name__ == "__main__":
    main()
