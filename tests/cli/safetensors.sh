# Every type of the language survives a .safetensors file, several results share one.
for type in f32 f16 bf16 f64 e4m3 e5m2 i32 i64 bool; do
    eider run 'a = x; b = x' --in x=$type[2,3]:randn@5 --device cpu \
        --out a:$type=t.safetensors:first --out b:$type=t.safetensors
    eider run 'a = x; b = y' --in x=t.safetensors:first --in y=t.safetensors:b --device cpu \
        --out a=u.safetensors:first --out b=u.safetensors
    cmp t.safetensors u.safetensors
    python3 - $type <<'PY'
import json
import sys
with open("t.safetensors", "rb") as f:
    raw = f.read()
size = int.from_bytes(raw[:8], "little")
header = json.loads(raw[8:8 + size])
assert size % 8 == 0
assert list(header) == ["first", "b"], header
assert header["first"]["shape"] == header["b"]["shape"] == [2, 3]
half = (len(raw) - 8 - size) // 2
assert header["first"]["data_offsets"] == [0, half]
assert header["b"]["data_offsets"] == [half, 2 * half]
assert raw[8 + size:8 + size + half] == raw[8 + size + half:]
print(sys.argv[1], header["b"]["dtype"], half // 6)
PY
done
code=0
eider run 'a = x; b = x' --in x=f32[2] --device cpu \
    --out a=t.safetensors:same --out b=t.safetensors:same 2>&1 || code=$?
echo "-> $code"
