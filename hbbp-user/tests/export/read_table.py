"""Reads the table of a profile by pyarrow and by DuckDB, which must agree, and prints its sums as JSON."""

import json
import sys

import duckdb
import pyarrow
import pyarrow.parquet

parquet, arrow = sys.argv[1:]
table = pyarrow.parquet.read_table(parquet)
with pyarrow.ipc.open_file(arrow) as file:
    same = file.read_all()
assert table.to_pylist() == same.to_pylist()
query = f"select ring, sum(amount), sum(samples), count(*) from read_parquet('{parquet}') group by ring order by ring"
rings = {ring: [executions, int(samples), rows] for ring, executions, samples, rows in duckdb.sql(query).fetchall()}
((total,),) = duckdb.sql("select sum(amount) from same").fetchall()
assert abs(total - sum(ring[0] for ring in rings.values())) < 1e-3
json.dump({"rows": table.num_rows, "rings": rings}, sys.stdout)
