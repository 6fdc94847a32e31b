# A kernel is timed and compared with a copy of as many bytes.
eider bench 'out = silu(gate) * up' --in gate=f32[100000] --in up=f32[100000] --device cpu \
    --repeat 5 >text
for line in device kernel time rate copy fraction; do grep -q "^$line " text; done
eider bench 'out = x' --in x=bf16[4096] --device cpu --repeat 3 --hot --json |
    python3 -c 'import json, sys
b = json.load(sys.stdin)
assert b["bytes"] == 2 * 2 * 4096 and not b["cold_l2"] and b["repeat"] == 3, b
assert 0 < b["p10_ns"] <= b["median_ns"] <= b["p90_ns"], b
assert b["copy_gb_per_s"] > 0 and b["fraction_of_copy"] > 0, b'
