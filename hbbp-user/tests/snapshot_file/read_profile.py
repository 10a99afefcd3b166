"""Prints totals of a profile of hbbp-sys as JSON. The format is specified in hbbp-user/src/snapshot/FORMAT.md."""
import json, struct, subprocess, sys, zlib

def unzstd(data):  # Python 3.14 has compression.zstd; older versions use the program.
    return subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout

def sections(file):
    assert file[:8] == b"HBBPSNAP" and struct.unpack_from("<H", file, 8) == (3,)
    at, name = 12, b""
    while name != b"end\0\0\0\0\0":
        name, encoding, stored, raw, crc, check = struct.unpack_from("<8sIQQII", file, at)
        data = file[at + 36:at + 36 + stored]
        assert zlib.crc32(file[at:at + 32]) == check and zlib.crc32(data) == crc
        yield name.rstrip(b"\0").decode(), unzstd(data) if encoding else data
        at += 36 + stored

class Table:
    def __init__(self, data): self.data, self.at = data, 0
    def __bool__(self): return self.at < len(self.data)
    def take(self, n): self.at += n; return self.data[self.at - n:self.at]
    def number(self): byte = self.take(1)[0]; return byte if byte < 128 else byte & 127 | self.number() << 7
    def signed(self): n = self.number(); return n >> 1 ^ -(n & 1)
    def bytes(self): return self.take(self.number())
    def groups(self):
        while self:
            n, event, process, kind = (self.number() for _ in range(4))
            for _ in range(n): yield kind
    def weighted(self, plain, unit, plain_weight):
        hits = self.number()
        if plain: return hits, plain_weight()
        return hits >> 1, (hits >> 1) * unit + (self.signed() if hits & 1 else 0)

def message(data):
    table, fields = Table(data), {}
    while table:
        key = table.number()
        fields.setdefault(key >> 3, []).append(table.bytes() if key & 7 == 2 else table.number())
    return fields

total = dict.fromkeys(["ip_hits", "ip_weight", "stream_hits", "branch_hits", "text_bytes"], 0)
total |= {"stream_weight": 0.0, "modules": [], "losses": {}, "hosts": [], "cgroups": [], "threads": []}
for name, data in sections(open(sys.argv[1], "rb").read()):
    fields = message(data)
    table = Table(fields.get(1, [b""])[0]) if name in ("modules", "text") else None
    while table:
        if name == "text": table.number(), table.signed(), table.number()
        content = table.bytes()
        if name == "text": total["text_bytes"] += len(content)
        else: total["modules"].append(content.decode()), table.number(), table.bytes()
    if name == "process":
        paths, (images, cgroups, tasks) = [], (Table(fields.get(n, [b""])[0]) for n in (1, 2, 3))
        while cgroups: paths.append(cgroups.bytes().decode())
        while images:
            images.number(), images.number(), images.bytes()
            for _ in range(images.number()): images.signed(), images.number(), images.number(), images.signed(), images.signed()
            cgroup, thread = (tasks.number(), tasks.number()) if tasks else (0, 0)
            total["cgroups"].append(paths[cgroup - 1] if cgroup else None)
            if thread: total["threads"].append([thread - 1, tasks.bytes().decode()])
    if name == "run": total["hosts"].append(fields.get(2, [b""])[0].decode())  # Each section `run` begins a run.
    for entry in map(message, fields.get(1, []) if name == "losses" else []):
        loss = entry.get(1, [b""])[0].decode()
        total["losses"][loss] = total["losses"].get(loss, 0) + entry.get(2, [0])[0]
    if name != "counts": continue
    ips, streams, branches = (Table(fields.get(n, [b""])[0]) for n in (4, 5, 6))
    plain, unit = (ips.number(), ips.number()) if ips else (0, 0)
    for _ in ips.groups():
        ips.signed()
        hits, weight = ips.weighted(plain, unit, ips.number)
        total["ip_hits"] += hits; total["ip_weight"] += weight
    plain, unit, cycles = (streams.number(), streams.number(), streams.number()) if streams else (0, 0, 0)
    for has_source in streams.groups():
        streams.signed(), streams.number(), has_source and streams.signed()
        hits, weight = streams.weighted(plain, unit, lambda: 256 * struct.unpack("<d", streams.take(8))[0])
        total["stream_hits"] += hits; total["stream_weight"] += weight / 256
        if cycles: streams.number()
    for full in branches.groups():
        branches.signed(), full and branches.signed()
        total["branch_hits"] += branches.number()
        if full: branches.number(), branches.number()
print(json.dumps(total))
