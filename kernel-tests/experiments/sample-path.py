#!/usr/bin/env python3
"""BPF instructions that a program on eventing IPs executes for a sample whose count exists already, by ring.

Usage: sample-path.py OBJECT [PROGRAM]

Interprets the eBPF object as the compiler wrote it, before the verifier leaves out what constants make dead and inlines
helpers. Maps are empty memory; the first sample of an address begins its count, later ones are what is printed. OBJECT is
`out/hbbp` of the build script of hbbp-collect, below target/*/build.
"""
import collections
import struct
import sys

MASK = (1 << 64) - 1
CONTEXT, STACK, RIP, EFLAGS, PERIOD = 0x1000, 0x7FFF0000, 128, 144, 168
CONSTANTS = {"BUCKETS": 1024, "EXEC_ID_OFFSET": 0x900, "SEED": 0x1234567}
LOOK_UP, RANDOM_TASK = 1, 0x0000007700000077
SIZES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}


class Object:
    """Code and relocations of one program of an ELF object."""

    def __init__(self, path, program):
        data = open(path, "rb").read()
        start, = struct.unpack_from("<Q", data, 40)
        entry, n, _ = struct.unpack_from("<HHH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * entry) for i in range(n)]
        contents = lambda section: data[section[4]:section[4] + section[5]]
        symbols = next(section for section in sections if section[1] == 2)
        names = contents(sections[symbols[6]])
        name = lambda at: names[at:names.index(b"\0", at)].decode()
        self.symbols = [struct.unpack_from("<IBBHQQ", contents(symbols), at) for at in range(0, symbols[5], 24)]
        found = next(symbol for symbol in self.symbols if name(symbol[0]) == program)
        self.code, self.start = contents(sections[found[3]]), found[4]
        self.names = {}
        for section in sections:
            if section[1] == 9 and section[7] == found[3]:
                for offset, info in struct.iter_unpack("<QQ", contents(section)):
                    self.names[offset] = name(self.symbols[info >> 32][0])


class Machine:
    """Registers and memory; what is nowhere written is 0."""

    def __init__(self, program, address):
        self.program, self.memory, self.bases = program, collections.defaultdict(int), {}
        self.store(CONTEXT + RIP, 8, address)
        self.store(CONTEXT + EFLAGS, 8, 0x246)
        self.store(CONTEXT + PERIOD, 8, 100_003)

    def store(self, address, size, value):
        for i in range(size):
            self.memory[address + i & MASK] = value >> 8 * i & 255

    def load(self, address, size):
        return sum(self.memory[address + i & MASK] << 8 * i for i in range(size))

    def base(self, name):
        if name not in self.bases:
            self.bases[name] = len(self.bases) + 1 << 32
            self.store(self.bases[name], 8, CONSTANTS.get(name, 0))
        return self.bases[name]

    def call(self, helper, registers):
        if helper == LOOK_UP:
            # A value of a map lies in a region of the map's own, values of an inner map in one of theirs.
            index = self.load(registers[2], 4) & 0xFFF
            return (registers[1] | 1 << 60) + 0x10000000 + 0x10000 * index
        return {14: RANDOM_TASK, 158: 0x55000000}.get(helper, 1)

    def sample(self):
        """Instructions of one run."""
        registers, at, n = [0] * 11, self.program.start, 0
        registers[1], registers[10] = CONTEXT, STACK
        while True:
            opcode, both, offset, number = struct.unpack_from("<BBhi", self.program.code, at)
            to, source, kind = both & 15, both >> 4, opcode & 7
            n, here, at = n + 1, at, at + 8
            if opcode == 0x95:
                return n
            if opcode == 0x18:
                high = struct.unpack_from("<i", self.program.code, at + 4)[0]
                name, at = self.program.names.get(here), at + 8
                registers[to] = self.base(name) if name else number & 0xFFFFFFFF | (high & 0xFFFFFFFF) << 32
            elif kind == 1:
                registers[to] = self.load(registers[source] + offset, SIZES[opcode & 0x18])
            elif kind == 2:
                self.store(registers[to] + offset, SIZES[opcode & 0x18], number & MASK)
            elif kind == 3:
                self.to_memory(opcode, number, registers[to] + offset, registers, source)
            elif opcode == 0x85:
                registers[0] = self.call(number, registers)
            elif kind in (4, 7):
                registers[to] = arithmetic(opcode, registers[to], registers[source] if opcode & 8 else number & MASK)
            elif opcode & 0xF0 == 0 or is_true(opcode, registers[to], registers[source] if opcode & 8 else number & MASK):
                at += 8 * (number if opcode == 6 else offset)

    def to_memory(self, opcode, number, address, registers, source):
        size = SIZES[opcode & 0x18]
        if opcode & 0xE0 == 0x60:
            self.store(address, size, registers[source])
            return
        before = self.load(address, size)
        if number == 0xF1:
            if before == registers[0]:
                self.store(address, size, registers[source])
            registers[0] = before
        elif number == 0:
            self.store(address, size, before + registers[source] & MASK)
        else:
            raise ValueError(f"unknown atomic operation {number:#x}")


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


def arithmetic(opcode, a, b):
    bits = 64 if opcode & 7 == 7 else 32
    mask = (1 << bits) - 1
    a, b = a & mask, b & mask
    shift = b & bits - 1
    operations = {
        0x00: lambda: a + b, 0x10: lambda: a - b, 0x20: lambda: a * b, 0x30: lambda: a // b if b else 0,
        0x40: lambda: a | b, 0x50: lambda: a & b, 0x60: lambda: a << shift, 0x70: lambda: a >> shift,
        0x80: lambda: -a, 0xA0: lambda: a ^ b, 0xB0: lambda: b, 0xC0: lambda: signed(a, bits) >> shift,
    }
    return operations[opcode & 0xF0]() & mask


def is_true(opcode, a, b):
    bits = 64 if opcode & 7 == 5 else 32
    a, b = a & (1 << bits) - 1, b & (1 << bits) - 1
    less = {0x60: signed(b, bits) < signed(a, bits), 0x70: signed(b, bits) <= signed(a, bits),
            0xC0: signed(a, bits) < signed(b, bits), 0xD0: signed(a, bits) <= signed(b, bits)}
    return {0x10: a == b, 0x20: a > b, 0x30: a >= b, 0x40: a & b != 0, 0x50: a != b, 0xA0: a < b, 0xB0: a <= b,
            **less}[opcode & 0xF0]


def main():
    program = Object(sys.argv[1], sys.argv[2] if 2 < len(sys.argv) else "on_ip_0")
    for ring, address in (("kernel", 0xFFFFFFFF81000010), ("user", 0x401000)):
        machine = Machine(program, address)
        first, later = machine.sample(), machine.sample()
        assert later == machine.sample()
        print(f"{ring}: {later} instructions, {first} for the first sample of an address")


main()
