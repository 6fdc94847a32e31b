# Errors are measured against double precision; a bound that is exceeded is exit code 1.
eider check 'out = silu(x)' --type bf16 --math exact --device cpu --max-ulp 0.51 >text
grep -q '^out  bf16  math=exact  65536 inputs' text
grep -q '^  ulp  ' text
code=0
eider check 'out = silu(x)' --type bf16 --math exact --device cpu --max-ulp 0.25 >text || code=$?
echo "-> $code"
# A product that overflows in f32 on the way to a finite result.
code=0
eider check 'out = x * 1e30 * 1e-30' --type bf16 --math fast --device cpu >text || code=$?
echo "-> $code"
grep -A 1 'NaN or infinity on one side only: ' text | sed 's/: [0-9]*$//'
code=0
eider check 'out = x * 1e30 * 1e-30' --type f16 --math fast --device cpu --json >text || code=$?
echo "-> $code"
python3 - <<'PY'
import json
row = json.load(open("text"))[0]
assert row["type"] == "f16" and row["inputs"] == 65536 and row["mismatches"] == 0, row
assert row["ulp"]["error"] <= 0.51, row
PY
# No mode of a row fails where others pass: extreme gates, and infinite ones.
eider check 'dx, out = drelu_sq(x, dout)' --type bf16 --math fast --device cpu >text
eider check 'out = swiglu_oai(x, y)' --type bf16 --math approx --device cpu >text
eider check 'out = swiglu(x, y)' --grad all --type f16 --math exact --device cpu >text
grep -c '^d[xy]  f16' text
eider check 'out = relu(x)' --type f32 --math fast --device cpu --markdown >text
cat text | sed 's/ on .*/ on .../'
