# Tuning on the CPU: a choice that is remembered, pinned, exported, imported and merged.
p='out = silu(x) * y'
tune() { eider tune "$p" --device cpu --shapes 'f32[16,256]' --hot --rounds 2 --records "$@"; }

tune here --space 'vec=4|8,unroll=1|2' --json --html page.html >first.json
tune here --space 'vec=8|4,unroll=2|1' --json >second.json
python3 - <<'PY'
import json
first, second = (json.load(open(f"{n}.json"))[0] for n in ("first", "second"))
assert first["end"] == "complete" and second["end"] == "recorded", (first["end"], second["end"])
assert first["config"] == second["config"] and first["key"] == second["key"]
assert len(first["entries"]) == 4 and all(e["samples_ns"] for e in first["entries"])
assert sorted(first["entries"], key=lambda e: e["median_ns"]) == first["entries"]
assert first["bytes"] == 3 * 16 * 256 * 4 and first["copy_gb_per_s"] > 0
assert any(line.startswith("trigger: pow2(out.count)") for line in first["key_text"])
page = open("page.html").read()
assert page.startswith("<!doctype html>") and page.count("<tr") >= 5
assert "http" not in page and "src=" not in page  # it needs nothing else
assert "class=best" in page and "class=heat" in page
PY

# What is recorded answers without timing; what is not is an error that names the key.
tune here --pinned | grep -q '^choice  vec='
EIDER_PRINT_AUTOTUNING=1 tune notes --space 'vec=4|8' 2>&1 | grep -q '^eider: note: tune chose vec='
code=0
tune empty --pinned >/dev/null 2>text || code=$?
grep -q '^eider: error: nothing is recorded for key [0-9a-f]\{32\}' text && [ $code = 3 ]

# Tables: exported, imported elsewhere, merged in either order.
eider tune --records here --export a.jsonl
eider tune --records there --import a.jsonl
tune there --pinned --json | python3 -c 'import json, sys
assert json.load(sys.stdin)[0]["config"] == json.load(open("first.json"))[0]["config"]'
tune other --space 'vec=2|4' --export b.jsonl >/dev/null
eider tune --merge a.jsonl b.jsonl --export ab.jsonl
eider tune --merge b.jsonl a.jsonl --export ba.jsonl
cmp ab.jsonl ba.jsonl
eider tune --merge ab.jsonl a.jsonl --export again.jsonl
cmp ab.jsonl again.jsonl

# A table for people: one line per config, the choice marked.
tune table --space 'vec=4|8' --set unroll=2 >text
grep -q '^choice  vec=[48],unroll=2,' text
[ "$(grep -c '^[* ] vec=' text)" = 2 ]
[ "$(grep -c '^\* vec=' text)" = 1 ]
grep -q ' of copy$' text

# Several shapes, triggers, conditions, a budget and a search.
tune shapes --shapes 'f32[64]' --space 'vec=1|2|4|8,tiles=1|2|4' --condition 'vec * tiles <= 8' \
    --trigger 'x.dtype,pow2(x.size(-1))' --budget 20s --search directed --limit 5 --seed 7 >text
[ "$(grep -c '^choice' text)" = 2 ]

# Wrong command lines.
try() {
    code=0
    eider tune "$@" >/dev/null 2>text || code=$?
    echo "$code $(head -1 text)"
}
try
try "$p" --budget soon
try "$p" another
try --merge a.jsonl
try --merge a.jsonl b.jsonl c.jsonl --export d.jsonl
try "$p" --device cpu --shapes 'f32[64]' --space 'vec=3' --records here
try "$p" --device cpu --shapes 'f32[64]' --space 'vec=4|8' --set vec=2 --records here
try "$p" --device cpu --shapes 'f32[64]' --trigger 'x.size' --records here
try --import absent.jsonl --records here
