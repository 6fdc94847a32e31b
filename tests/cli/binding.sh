# The benchmarks' Python binding fits the header: a program runs through it.
lib=$EIDER_TEST_BIN/libeider.so
if asan=$(ldd "$lib" | grep -o '/[^ ]*libasan[^ ]*'); then
    export LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
fi
EIDER_LIB=$lib PYTHONPATH=$EIDER_TEST_DATA/../bench PYTHONDONTWRITEBYTECODE=1 python3 - <<'PY'
import array
import eider
import formulas

library = eider.Library()
device = library.device("cpu")
x, y = array.array("f", range(1000)), array.array("f", [0.5] * 1000)
out = array.array("f", [0.0] * 1000)
args = eider.tensors([(a.buffer_info()[0], "f32", (1000,)) for a in (x, y, out)])
kernel = eider.Kernel(library, device, "out = x * y", args, math="exact")
kernel.launch(args)
assert list(out) == [i / 2 for i in range(1000)], out[:10]
assert kernel.bytes(args) == 12000
assert len(kernel.time(args, 3)) == 3
info = kernel.info()
assert info["numerics"].startswith("math=exact") and len(info["key"]) == 32, info
kernel.release()
try:
    eider.Kernel(library, device, "out = ", args)
except eider.EiderError as error:
    print(str(error).split(":")[0])
tuned = eider.tune(library, device, "out = x * y", args, space="vec=4|8,unroll=1|2", hot=1,
                   rounds=2, warm_up_ms=-1, no_records=1, condition="vec * unroll < 16")
assert tuned["n_entries"] == tuned["n_timed"] == len(tuned["timings"]) == 3, tuned
assert tuned["config"] in tuned["timings"] and len(tuned["key"]) == 32, tuned
assert tuned["total_s"] >= tuned["time_s"] > 0 and tuned["key_text"].startswith("tuning:"), tuned
rows = library.activations()
for name, row in rows.items():
    assert formulas.program(name, row[0]).count("("), name
compile(formulas.torch_source(rows), "torch", "exec")
compile(formulas.triton_source(rows, "bf16"), "triton", "exec")
assert "?_" not in formulas.torch_source(rows) + formulas.triton_source(rows, "bf16")
PY
