# Every type survives a .npy file, spelled as NumPy and ml_dtypes spell it.
for type in f32 f16 bf16 f64 e4m3 e5m2 i32 i64 bool; do
    eider run 'out = x' --in x=$type[2,3]:randn@5 --out out:$type=a.npy --device cpu
    eider run 'out = x' --in x:$type=a.npy --out out:$type=b.npy --device cpu
    cmp a.npy b.npy
    python3 - $type <<'PY'
import ast
import sys
with open("a.npy", "rb") as f:
    raw = f.read()
size = int.from_bytes(raw[8:10], "little")
header = ast.literal_eval(raw[10:10 + size].decode())
assert raw[:8] == b"\x93NUMPY\x01\x00" and (10 + size) % 64 == 0, raw[:16]
assert header["shape"] == (2, 3) and header["fortran_order"] is False, header
width = int(header["descr"][2:])
assert len(raw) == 10 + size + 6 * width
print(sys.argv[1], header["descr"])
PY
done
# Without a type, bytes of one are e4m3 and bytes of two bf16.
eider run 'out = x' --in x=e4m3[4]:arange --out out=a.npy --device cpu
eider run 'out = x' --in x=a.npy --device cpu
eider run 'out = x' --in x=bf16[]:randn --out out=a.npy --device cpu
eider run 'out = x' --in x=a.npy --device cpu
eider run 'out = x' --in x=bf16[3,0] --out out=a.npy --device cpu
eider run 'out = x' --in x=a.npy --device cpu
