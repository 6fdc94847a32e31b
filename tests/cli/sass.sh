# Machine code of programs and files: counts, budgets, differences, JSON.
p='out = silu(gate) * up'
sass() { eider sass "$@" --target sm_90 --math approx; }
sass "$p" >text 2>errors || {
    if grep -q 'not found' errors; then echo "SKIPPED: $(head -1 errors)"; exit 77; fi
    cat errors
    exit 1
}
grep -q 'MUFU.TANH .*MUFU$' text
grep -q 'tanh.approx' text
grep -q '<- the bound' text
grep -q '\[B.*:S[0-9][0-9]\] MUFU.TANH' text

# Budgets: an exit code, and what does not hold as a difference.
sass "$p" --expect 'MUFU.TANH=1,FMUL<=2,FFMA<=1' --expect 'LDG=0'
code=0
sass "$p" --expect 'MUFU.TANH=1,FMUL<=1' 2>text || code=$?
echo "budget -> $code"
cat text
code=0
sass "$p" --expect 'FMUL<=x' 2>text || code=$?
echo "wrong budget -> $code"

# Files: the same code from the program, its PTX and its cubin.
sass "$p" --json >program.json
eider emit "$p" --target sm_90 --math approx -o kernel.ptx
eider emit "$p" --target sm_90 --math approx --stage cubin -o kernel.cubin
eider sass kernel.ptx --json >ptx.json
eider sass kernel.cubin --elements 8 --json >cubin.json
cat >kernel.ll <<'LL'
define ptx_kernel void @twice(ptr addrspace(1) %x) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr float, ptr addrspace(1) %x, i32 %t
  %a = load float, ptr addrspace(1) %p, align 4
  %b = fadd float %a, %a
  store float %b, ptr addrspace(1) %p, align 4
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
LL
eider sass kernel.ll --target sm_80 --json >ll.json
python3 - <<'PY'
import json
program, ptx, cubin, ll = (json.load(open(f"{n}.json")) for n in ("program", "ptx", "cubin", "ll"))
assert program["schema"] == 1
assert program["summary"]["hash"] == ptx["summary"]["hash"] == cubin["summary"]["hash"]
assert program["summary"]["pass_instructions"] == cubin["summary"]["pass_instructions"]
assert program["summary"]["attribution"] == "terms" and ptx["summary"]["attribution"] == "lines"
assert len(program["code"]) == program["summary"]["instructions"]
tanh = [o for o in program["opcodes"] if o["opcode"] == "MUFU.TANH"]
assert tanh[0]["per_element"] == tanh[0]["in_terms"] == 1, tanh
assert program["summary"]["bound"]["name"] == "memory"
assert ll["summary"]["target"] == "sm_80" and ll["summary"]["entry"] == "twice"
lines = {t["line"]: t for t in ll["terms"]}
assert "fadd" in lines[5]["text"] and "FADD" in lines[5]["opcodes"], lines
PY

# Differences: none of itself, and those of a mode.
sass --diff "$p" "$p" | grep -q '^the same machine code$'
sass --diff "$p" '+vec=4' >/dev/null
sass --diff "$p" '+math=fast' >text
grep -q '^- MUFU.TANH' text
grep -q '^+ MUFU.EX2' text
grep -q 'MUFU.TANH  *1 -> 0' text
sass --diff "$p" '+math=fast' --json | python3 -c 'import json, sys
d = json.load(sys.stdin)
assert d["before"]["hash"] != d["after"]["hash"]
assert {c["sign"] for c in d["changes"]} == {" ", "-", "+"}'

# Keys of the cache.
key=$(python3 -c 'import json; print(json.load(open("program.json"))["summary"]["key"])')
eider sass "$key" --json >key.json
python3 -c 'import json
a, b = json.load(open("program.json")), json.load(open("key.json"))
assert a["summary"]["hash"] == b["summary"]["hash"]
assert a["summary"]["elements"] == b["summary"]["elements"]'
for words in "00000000000000000000000000000000" "+math=fast" "nothing.cubin" "$p --diff" \
    "kernel.cubin --entry other"; do
    code=0
    # shellcheck disable=SC2086
    if [ "$words" = "$p --diff" ]; then
        eider sass "$p" --diff 2>text || code=$?
    else
        eider sass $words 2>text || code=$?
    fi
    echo "$words -> $code"
    sed "s/eider_map_[0-9a-f]*/NAME/g" text
done
