# A malformed .safetensors file is refused with a message; nothing crashes.
cat >make.py <<'PY'
import json
import random
import struct
def put(name, head, data=bytes(24), size=None):
    head = head if isinstance(head, bytes) else json.dumps(head).encode()
    with open(name, "wb") as f:
        f.write(struct.pack("<Q", len(head) if size is None else size) + head + data)
def entry(begin=0, end=24, shape=(6,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
put("good.safetensors", {"__metadata__": {"format": "pt"}, "x": entry()})
open("01-empty.safetensors", "wb").close()
open("02-short.safetensors", "wb").write(b"\1\0\0")
put("03-header-beyond-end.safetensors", {"x": entry()}, size=10000)
put("04-header-huge.safetensors", {"x": entry()}, size=2**64 - 1)
put("05-not-json.safetensors", b"{'x': 1}")
put("06-array.safetensors", b"[1, 2]")
put("07-twice.safetensors", b'{"x": {}, "x": {}}')
put("08-overlap.safetensors", {"x": entry(), "y": entry(12, 36)}, bytes(36))
put("09-gap.safetensors", {"x": entry(), "y": entry(28, 52)}, bytes(52))
put("10-beyond-end.safetensors", {"x": entry(0, 240, (60,))})
put("11-unused-end.safetensors", {"x": entry()}, bytes(32))
put("12-size.safetensors", {"x": entry(shape=(7,))})
put("13-negative.safetensors", {"x": entry(-24, 0)})
put("14-backwards.safetensors", {"x": entry(24, 0)})
put("15-offset-words.safetensors", {"x": entry("0", "24")})
put("16-shape-negative.safetensors", {"x": entry(shape=(-6,))})
put("17-shape-overflow.safetensors", {"x": entry(shape=(2**62, 16))})
put("18-rank.safetensors", {"x": entry(shape=(1,) * 9)})
put("19-type.safetensors", {"x": entry(dtype="U64")})
put("20-no-type.safetensors", {"x": {"shape": [6], "data_offsets": [0, 24]}})
put("21-no-name.safetensors", {"xx": entry()})
put("22-deep.safetensors", b"[" * 100000)
raw = open("good.safetensors", "rb").read()
random.seed(1)
for i in range(24):
    changed = bytearray(raw)
    for _ in range(1 + i % 4):
        changed[random.randrange(len(changed) - 24)] = random.randrange(256)
    open(f"fuzz-{i:02}.safetensors", "wb").write(changed)
PY
python3 make.py
eider run 'out = x' --in x=good.safetensors --out out=out.npy --device cpu
for file in [0-9]*.safetensors; do
    code=0
    eider run 'out = x' --in x=$file:x --device cpu 2>&1 || code=$?
    echo "-> $code"
done
for file in fuzz-*.safetensors; do
    code=0
    eider run 'out = x' --in x=$file:x --device cpu >text 2>&1 || code=$?
    case $code in
    0) ;;
    2 | 4) grep -q '^eider: error: ' text ;;
    *) echo "$file: exit code $code"; cat text ;;
    esac
done
