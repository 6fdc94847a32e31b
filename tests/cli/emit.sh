# Every stage of a kernel can be looked at, for targets that are not here.
p='out = silu(gate) * up'
eider emit "$p" --stage program
eider emit "$p" --target sm_90 | grep -q '^\.target sm_90'
eider emit "$p" --target sm_80 | grep -q '^\.target sm_80'
eider emit "$p" --target sm_90 --stage ir | grep -q '^define '
eider emit "$p" --target sm_90 --stage opt | grep -q '^define '
eider emit "$p" --target sm_90 --math approx | grep -q 'tanh\.approx\.f32'
eider emit "$p" --target sm_90 --math exact >exact.ptx
! grep -q approx exact.ptx
eider emit "$p" --target cpu | grep -q ret
eider emit "$p" --target cpu --stage cubin -o kernel.o
[ "$(head -c 4 kernel.o | tail -c 3)" = ELF ]
eider emit "$p" --target sm_90 --set vec=4 --set block=128 -o kernel.ptx --json |
    python3 -c 'import json, sys
k = json.load(sys.stdin)
assert "vec=4" in k["config"] and "block=128" in k["config"], k
assert k["target"] == "sm_90" and k["file"] == "kernel.ptx", k'
grep -q '^\.target sm_90' kernel.ptx
grep -q 'maxntid 128' kernel.ptx
eider emit 'out = swiglu(x, y)' --grad x --with-forward --stage program >backward.txt
eider emit @backward.txt --target sm_90 | grep -q '^\.target sm_90'
code=0
eider emit "$p" --target sm_12 2>&1 | head -1 | grep -q '^eider: error: .*sm_12'
eider emit "$p" --set vec=3 >/dev/null 2>text || code=$?
grep -q "^eider: error: .*vec" text
echo "-> $code"

# An input that is not described is like the largest that is, or what it is declared as.
eider emit rmsnorm_backward --stage ir >ir.txt
(eider cache explain 'out = x * y' --in x=f32[6,10] --target cpu || true) | grep -q ' y:f32\[1\]'
eider emit cross_entropy --in target=i64[12] >out.txt
