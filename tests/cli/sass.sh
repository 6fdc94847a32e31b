# Machine code of programs and files: counts, budgets, differences, JSON.
export EIDER_CACHE_DIR=$PWD/kernels
p='out = silu(gate) * up'
set=vec=4,unroll=2
sass() { eider sass "$@" --target sm_90 --math approx --set $set; }
sass "$p" >text 2>errors || {
    if grep -q 'nvdisasm was not found' errors; then echo "SKIPPED: $(head -1 errors)"; exit 77; fi
    cat errors
    exit 1
}
grep -q 'MUFU.TANH .*MUFU$' text
grep -q 'tanh.approx' text
grep -q '<- the bound' text
grep -q '\[B.*:S[0-9][0-9]\] MUFU.TANH' text

# Budgets: an exit code, and what does not hold as a difference.
sass "$p" --expect 'MUFU.TANH=1,FMUL<=2,FFMA<=1' --expect 'LDG=0'
sass "$p" --expect 'FMUL<=2' --json | python3 -c 'import json, sys
assert json.load(sys.stdin)["claims"] == [
    {"name": "FMUL", "relation": "<=", "want": 2, "got": 2, "holds": True}]'
code=0
sass "$p" --expect 'MUFU.TANH=1,FMUL<=1' 2>text || code=$?
echo "budget -> $code"
cat text
code=0
sass "$p" --expect 'FMUL<=x' 2>text || code=$?
echo "wrong budget -> $code"

# Files: the same code from the program, its PTX and its cubin.
sass "$p" --json >program.json
eider emit "$p" --target sm_90 --math approx --set $set -o kernel.ptx
eider emit "$p" --target sm_90 --math approx --set $set --stage cubin -o kernel.cubin
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
assert len(program["ir"]) > 20 and any("tanh.approx" in l["text"] for l in program["ptx"])
tanh = [o for o in program["opcodes"] if o["opcode"] == "MUFU.TANH"]
assert tanh[0]["per_element"] == tanh[0]["in_terms"] == 1, tanh
assert program["summary"]["bound"]["name"] == "memory"
assert ll["summary"]["target"] == "sm_80" and ll["summary"]["entry"] == "twice"
lines = {t["line"]: t for t in ll["terms"]}
assert "fadd" in lines[5]["text"] and "FADD" in lines[5]["opcodes"], lines
PY

# Differences: none of itself; of two configs, targets, modes and files.
sass --diff "$p" "$p" | grep -q '^the same machine code$'
sass --diff "$p" '+vec=8' >configs
grep -q '^- LDG.E.64 ' configs && grep -q '^+ LDG.E.128 ' configs
sass --diff "$p" '+target=sm_100' >targets
grep -q '^- ULDC' targets && grep -q '^+ LDCU' targets
sass --diff "$p" '+math=fast' >modes
grep -q '^- MUFU.TANH' modes && grep -q '^+ MUFU.EX2' modes
grep -q 'MUFU.TANH  *1 -> 0' modes
eider sass --diff kernel.ptx kernel.cubin | grep -q '^the same machine code$'
eider sass --diff kernel.cubin kernel.ll --target sm_90 >files
grep -q '^- MUFU.TANH' files && grep -q '^+ FADD' files
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
assert a["summary"]["elements"] == b["summary"]["elements"]
assert a["terms"] == b["terms"] and b["summary"]["attribution"] == "terms"'
eider sass --diff "${key:0:12}" '+math=fast' | grep -q '^- MUFU.TANH'
for broadcast in 'scalar s; out = x * y + s' 'scalar s; out = x * y / (sum(x) + s)'; do
    eider sass "$broadcast" --target sm_90 --in 'x=f16[8,1000]' --in 'y=f16[1000]' \
        --scalar s=2 --json >program.json
    key=$(python3 -c 'import json; print(json.load(open("program.json"))["summary"]["key"])')
    eider sass "$key" --json | grep -q '"attribution": "terms"'
done

# What goes wrong is one message and an exit code.
fails() {
    local code=0
    eider sass "$@" >output 2>&1 || code=$?
    echo "$* -> $code"
    sed "s/eider_map_[0-9a-f]*/NAME/g; s|$PWD|HERE|g" output
}
fails 00000000000000000000000000000000
fails +math=fast
fails nothing.cubin
fails "$p" --diff
fails kernel.cubin --entry other

# Tools see nothing of the environment that could change them, and are quoted when they fail.
cat >nvdisasm <<'SH'
#!/bin/sh
if [ "$1" = --version ]; then echo 'release 1, V1.0'; exit; fi
echo "it broke; of the caller: $(env | grep -c -e LD_ -e EIDER_)" >&2
exit 3
SH
chmod +x nvdisasm
export LD_BIND_NOW=1 EIDER_NVDISASM=$PWD/nvdisasm
fails kernel.cubin
