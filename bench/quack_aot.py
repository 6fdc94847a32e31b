#!/usr/bin/env python3
"""Compiles quack-kernels' kernels over rows ahead of time, for bench/rows.py --quack FOLDER.

    QUACK_ARCH=90 CUTE_DSL_ARCH=sm_90a python3 bench/quack_aot.py FOLDER [--shapes ROWSxLENGTH,...]

Needs quack-kernels, nvidia-cutlass-dsl[cu13], torch and gcc, and no GPU.  The machine that measures
then needs apache-tvm-ffi alone, and none of its time goes into compiling.  Every kernel is
what quack's own functions launch for such tensors: same classes, same heuristics, with gradients of
weights left out where the program has none.

FOLDER receives PROGRAM-TYPE-ROWSxLENGTH.so, libcute_dsl_runtime.so, which they load, and
index.json: for each kernel how many blocks to launch where quack asks for that, or why there is
none.
"""
import argparse
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

SHAPES = ("32768x256,32768x1024,32768x4096,32768x8192,16384x16384,16384x32768,8192x65536,"
          "16384x131072,8192x262144")


def compilers():
    """{program: function of (type, rows, length) that compiles quack's kernel}."""
    import cutlass  # the package holds functions of the same names as these modules
    ce, norm, softmax = (importlib.import_module("quack." + name)
                         for name in ("cross_entropy", "rmsnorm", "softmax"))
    types = {"bf16": cutlass.BFloat16, "f32": cutlass.Float32}

    def forward(bias, layernorm):
        return lambda t, rows, n: norm._compile_rmsnorm_fwd(
            t, t, None, t, t if bias else None, None, n, False, False, layernorm, False, 0.0)

    def backward(layernorm):
        return lambda t, rows, n: norm._compile_rmsnorm_bwd(
            n, t, t, t, t, False, None, None, False, False, T_hint=norm._bucket_T_hint(rows),
            is_layernorm=layernorm, weight_offset=0.0)

    def loss(gradient):
        return lambda t, rows, n: ce.CrossEntropy.compile(t, cutlass.Int64, None, n, True, gradient,
                                                          None, None)
    return types, {
        "rmsnorm": forward(False, False), "layernorm": forward(True, True),
        "rmsnorm_backward": backward(False), "layernorm_backward": backward(True),
        "softmax": lambda t, rows, n: softmax.Softmax.compile(t, t, n),
        "softmax_backward": lambda t, rows, n: softmax.SoftmaxBackward.compile(t, t, t, n),
        "cross_entropy": loss(False), "cross_entropy_train": loss(True),
        "cross_entropy_backward":
            lambda t, rows, n: ce.CrossEntropyBackward.compile(t, cutlass.Int64, n, None),
    }


def link(compiled, runtime, path):
    with tempfile.TemporaryDirectory() as folder:
        part = os.path.join(folder, "kernel.o")
        compiled.export_to_c(object_file_path=part, function_name="kernel")
        subprocess.run(["gcc", "-shared", "-s", "-Wl,-Bsymbolic,-rpath,$ORIGIN", "-o", path, part,
                        runtime], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--units", type=int, default=132, help="multiprocessors of the GPU")
    args = parser.parse_args()
    os.environ["QUACK_CACHE_ENABLED"] = "0"  # what is loaded from there cannot be exported
    import nvidia_cutlass_dsl
    import quack
    import quack.rmsnorm_config as config
    args.folder.mkdir(parents=True, exist_ok=True)
    runtime = args.folder / "libcute_dsl_runtime.so"
    package = pathlib.Path(list(nvidia_cutlass_dsl.__path__)[0])
    shutil.copy(package / "cu13/lib" / runtime.name, runtime)
    types, programs = compilers()
    index = {"quack": quack.__version__}
    for rows, length in (map(int, s.split("x")) for s in args.shapes.split(",")):
        for type_name, dtype in types.items():
            for program, compiles in programs.items():
                name = f"{program}-{type_name}-{rows}x{length}"
                try:
                    link(compiles(dtype, rows, length), runtime, args.folder / f"{name}.so")
                    blocks = config._get_sm_count_hopper(length, args.units)
                    index[name] = {"blocks": blocks}
                except Exception as error:  # a length that quack does not do
                    index[name] = {"missing": f"{type(error).__name__}: {error}"[:300]}
                print(name, index[name], flush=True)
    (args.folder / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
