# Big-endian numbers, Fortran order, versions 2 and 3, raw integers: converted.
cat >make.py <<'PY'
import struct
def npy(name, descr, fortran, shape, data, version=1):
    head = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(head))
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY" + bytes([version, 0]) + size + head + data)
little = struct.pack("<6f", *range(6))
npy("plain.npy", "<f4", False, (2, 3), little)
npy("big.npy", ">f4", False, (2, 3), struct.pack(">6f", *range(6)))
npy("fortran.npy", "<f4", True, (2, 3), struct.pack("<6f", 0, 3, 1, 4, 2, 5))
npy("v2.npy", "<f4", False, (2, 3), little, 2)
npy("v3.npy", "<f4", False, (2, 3), little, 3)
npy("raw.npy", "<u2", False, (3,), struct.pack("<3H", 0x3f80, 0xc000, 0x7f80))
PY
python3 make.py
for name in plain big fortran v2 v3; do
    eider run 'out = x' --in x=$name.npy --device cpu
done
eider run 'out = x' --in x:bf16=raw.npy --device cpu
eider run 'out = x' --in x:f16=raw.npy --device cpu
