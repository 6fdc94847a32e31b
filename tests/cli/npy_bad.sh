# A malformed .npy file is refused with a message; nothing crashes, nothing is allocated for it.
cat >make.py <<'PY'
import random
import struct
def put(name, raw):
    with open(name, "wb") as f:
        f.write(raw)
def npy(name, head, data=bytes(24), size=None, version=1):
    head = head.encode()
    put(name, b"\x93NUMPY" + bytes([version, 0]) +
        struct.pack("<H" if version == 1 else "<I", len(head) if size is None else size) +
        head + data)
good = "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }\n"
npy("good.npy", good)
put("01-empty.npy", b"")
put("02-magic.npy", b"NUMPY" * 10)
put("03-cut-magic.npy", b"\x93NUM")
npy("04-version.npy", good, version=9)
npy("05-header-beyond-end.npy", good, size=9000)
npy("06-header-huge.npy", good, size=0xffffffff, version=2)
npy("07-cut-data.npy", good, bytes(20))
npy("08-more-data.npy", good, bytes(28))
npy("09-no-shape.npy", "{'descr': '<f4', 'fortran_order': False, }\n")
npy("10-structured.npy", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }\n")
npy("11-complex.npy", good.replace("<f4", "<c8"))
npy("12-object.npy", good.replace("<f4", "|O"))
npy("13-negative.npy", good.replace("6,", "-6,"))
npy("14-overflow.npy", good.replace("6,", "4611686018427387904, 16"))
npy("15-huge.npy", good.replace("6,", "1099511627776,"))
npy("16-rank.npy", good.replace("6,", "1," * 9))
npy("17-no-tuple.npy", good.replace("(6,)", "6"))
npy("18-open-tuple.npy", good.replace("(6,)", "(6,"))
npy("19-words.npy", good.replace("(6,)", "(six,)"))
npy("20-not-a-dict.npy", "[]\n")
npy("21-no-end.npy", "{'descr': '<f4")
npy("22-long-type.npy", good.replace("<f4", "<" + "f" * 100))
npy("23-integers.npy", good.replace("<f4", "<u2"), bytes(12))
raw = bytearray(open("good.npy", "rb").read())
random.seed(1)
for i in range(24):
    changed = bytearray(raw)
    for _ in range(1 + i % 4):
        changed[random.randrange(len(changed) - 24)] = random.randrange(256)
    put(f"fuzz-{i:02}.npy", changed)
PY
python3 make.py
eider run 'out = x' --in x=good.npy --out out=out.npy --device cpu
for file in [0-9]*.npy; do
    code=0
    eider run 'out = x' --in x=$file --device cpu 2>&1 || code=$?
    echo "-> $code"
done
for file in fuzz-*.npy; do
    code=0
    eider run 'out = x' --in x=$file --device cpu >text 2>&1 || code=$?
    case $code in
    0) ;;
    2 | 4) grep -q '^eider: error: ' text ;;
    *) echo "$file: exit code $code"; cat text ;;
    esac
done
