"""Reads a profile of pprof by its own schema: checks references, and prints the sum of each value as JSON."""

import gzip
import json
import sys

from pypprof import profile_pb2

profile = profile_pb2.Profile()
with gzip.open(sys.argv[1]) as file:
    profile.ParseFromString(file.read())
strings = profile.string_table
assert strings[0] == ""
mappings = {mapping.id for mapping in profile.mapping}
functions = {function.id: strings[function.name] for function in profile.function}
locations = {location.id: location for location in profile.location}
assert len(locations) == len(profile.location) and 0 not in locations
for location in locations.values():
    assert location.mapping_id in mappings
    assert all(line.function_id in functions for line in location.line)
sums = {strings[kind.type]: 0 for kind in profile.sample_type}
rings = {}
for sample in profile.sample:
    assert all(location in locations for location in sample.location_id)
    for kind, value in zip(profile.sample_type, sample.value, strict=True):
        sums[strings[kind.type]] += value
    labels = {strings[label.key]: strings[label.str] for label in sample.label}
    rings[labels.get("ring")] = rings.get(labels.get("ring"), 0) + sample.value[0]
json.dump({"sums": sums, "rings": rings, "functions": sorted(set(functions.values()))}, sys.stdout)
