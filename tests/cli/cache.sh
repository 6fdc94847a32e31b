# What is kept on disk can be listed, explained, checked, moved and removed.
export EIDER_CACHE_DIR=$PWD/kernels
p='out = silu(gate) * up'
status() { local code=0; "$@" >out.txt 2>err.txt || code=$?; echo $code; }

eider cache ls >out.txt && [ ! -s out.txt ]
[ "$(status eider cache explain "$p" --target cpu)" = 1 ]
grep -q '^miss of ' out.txt && grep -q '^nothing is kept$' out.txt

eider emit "$p" --target cpu --stage cubin -o a.o
eider emit "$p" --target cpu --set vec=2 --stage cubin -o b.o
[ "$(eider cache ls | wc -l)" = 2 ]
eider cache ls | grep -q 'cpu .* out = silu(gate) \* up$'
eider emit "$p" --target cpu --stage cubin -o again.o
cmp a.o again.o

# A hit compiles nothing; stats of a program show it.
eider cache stats "$p" --target cpu >out.txt
grep -q '^disk_hits *1$' out.txt && grep -q '^compiles *0$' out.txt
grep -q "^directory *$PWD/kernels$" out.txt && grep -q '^files *2 of 65536$' out.txt
eider cache stats --json | python3 -c 'import json, sys
s = json.load(sys.stdin)
assert s["files"] == 2 and s["bytes"] > 0 and s["counters"]["compiles"] == 0, s'

# Why not: the nearest entry and the ingredients that differ.
eider cache explain "$p" --target cpu | head -1 | grep -q '^hit of '
[ "$(status eider cache explain "$p" --target cpu --math exact)" = 1 ]
grep -q '^  numerics$' out.txt
grep -q '^    wanted  math=exact,ftz=off,contract=on$' out.txt
grep -q '^    kept    math=approx,ftz=off,contract=on$' out.txt
eider cache explain "$p" --target cpu --ftz on --json >out.txt || true
python3 -c 'import json
e = json.load(open("out.txt"))
assert not e["hit"] and [d["name"] for d in e["differences"]] == ["numerics"], e'

# One entry, by the beginning of its key.
key=$(eider cache ls --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["key"])')
eider cache show "${key:0:10}" | grep -q "^key: $key$"
eider cache show "$key" | grep -q '^program: out = silu(gate) \* up$'
eider cache show "$key" --stage cubin -o c.o
cmp c.o a.o || cmp c.o b.o
[ "$(status eider cache show)" = 2 ]
[ "$(status eider cache show 0000000000)" = 1 ]
[ "$(status eider cache show "$key" --stage ptx)" = 2 ]
[ "$(status eider cache list)" = 2 ]
grep -q "unknown word 'list'" err.txt

# An archive is a layer where it is, or is taken over.
eider cache export all.eider | grep -q '^2 exported$'
eider cache export one.eider "$key" | grep -q '^1 exported$'
chmod a-w all.eider
EIDER_CACHE_DIR= EIDER_CACHE_PATH=$PWD/all.eider eider cache stats "$p" --target cpu >out.txt
grep -q '^disk_hits *1$' out.txt && grep -q "^layer *$PWD/all.eider$" out.txt
EIDER_CACHE_DIR=$PWD/other eider cache import all.eider --json | grep -q '"imported": 2'
EIDER_CACHE_DIR=$PWD/other eider cache verify | grep -q '^2 entries, 0 damaged$'
[ "$(status eider cache import a.o)" = 4 ]
grep -q 'is no archive of kernels' err.txt

# Damage is found, costs one warning and a compile, and is repaired.
printf x | dd of="$(find kernels -name "*-$key")" bs=1 seek=100 conv=notrunc 2>dd.txt
[ "$(status eider cache verify)" = 1 ]
grep -q '^2 entries, 1 damaged$' out.txt
grep -q "^${key:0:12}  damaged: its checksum is wrong" out.txt
eider emit "$p" --target cpu --stage cubin -o d.o 2>>warnings.txt
eider emit "$p" --target cpu --set vec=2 --stage cubin -o d.o 2>>warnings.txt
[ "$(grep -c 'is damaged (its checksum is wrong); it is compiled again' warnings.txt)" = 1 ]
eider cache verify | grep -q ' 0 damaged$'

# Budgets.
eider cache prune --max-files 1 | grep -q ' removed$'
[ "$(eider cache ls | wc -l)" = 1 ]
eider cache prune --max-files 0 | grep -q '^1 removed$'
eider cache ls >out.txt && [ ! -s out.txt ]

# Switched off, nothing is written anywhere.
for off in '' 0 false; do
    EIDER_CACHE_DIR=$off eider emit "$p" --target cpu --stage cubin -o e.o
done
[ ! -e 0 ] && [ ! -e false ] && [ ! -e .cache ]
