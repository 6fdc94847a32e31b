# Operands that do not fit the program are named; nothing is written.
try() {
    local code=0
    eider run "$@" --device cpu 2>&1 || code=$?
    echo "-> $code"
}
p='out = silu(gate) * up'
try "$p" --in gate=f32[4]
try "$p" --in gate=f32[4] --in upp=f32[4]
try "$p" --in gate=f32[4] --in zebra=f32[4]
try "$p" --in gate=f32[4] --in gate=f32[4]
try "$p" --in gate=f32[4,3] --in up=f32[4]
try "$p" --in gate=f32[4:randn --in up=f32[4]
try "$p" --in gate=f23[4] --in up=f32[4]
try "$p" --in gate=f32[4]:randm --in up=f32[4]
try "$p" --in gate=f32[4]:randn@x --in up=f32[4]
try "$p" --in gate=f32[-1] --in up=f32[4]
try "$p" --in gate=f32[1,1,1,1,1,1,1,1,1] --in up=f32[4]
try "$p" --in gate=f32[4611686018427387904,4] --in up=f32[4]
try "$p" --in gate=noise --in up=f32[4]
try "$p" --in gate=none.npy --in up=f32[4]
try "$p" --in gate:bf16=f32[4] --in up=f32[4]
try "$p" --in gate=f32[4] --in up=f32[4] --out out=result.txt
try "$p" --in gate=f32[4] --in up=f32[4] --out result=a.npy
try "$p" --in gate=f32[4] --in up=f32[4] --out out:b16=a.npy
try "$p" --in gate=f32[4] --in up=f32[4] --scalar gate=1
try "$p" --in gate=f32[4] --in up=f32[4] --out out=none/a.npy
try 'scalar a; out = a * x' --in x=f32[4]
try 'scalar a; out = a * x' --in x=f32[4] --scalar a=one
try '@none.txt' --in x=f32[4]
eider run "$p" --in gate=f32[1000000000000] --in up=f32[4] --device cpu 2>&1 |
    sed 's/there are .*/there are .../'
[ ! -e a.npy ]
