#!/usr/bin/env python3
"""How long a cold expression takes to become a loaded kernel, stage by stage.

    python3 bench/compile_time.py [--device cuda:0] [--assembler NAME] [--repeat 40]
    python3 bench/compile_time.py --programs [--repeat 5] [--shape 32768x4096] [--type bf16]

Each repeat compiles a program that no cache has seen: a literal differs, or, with --programs, which
goes through the library's programs over rows, the context is a new one.  `wall` is the clock
around eider_prepare; the stages are what the library itself reports.
"""
import argparse
import os
import statistics
import time

import eider

PROGRAM = "out = silu(gate) * up * {}"
STAGES = ["ir_ns", "opt_ns", "ptx_ns", "assemble_ns", "load_ns"]
SHOWN = ["wall", "ir", "opt", "ptx", "codegen", "assemble", "load"]
INPUT_TYPES = {"target": "i64", "mask": "bool"}  # where a program declares none


def compile_one(library, device, text, args, assembler=None):
    """{stage: milliseconds}, and what the kernel says of itself."""
    start = time.perf_counter()
    kernel = eider.Kernel(library, device, text, args, assembler=assembler)
    wall = (time.perf_counter() - start) * 1e3
    info = kernel.info()
    kernel.release()
    return {"wall": wall, **{s[:-3]: info[s] / 1e6 for s in STAGES},
            "codegen": sum(info[s] for s in STAGES[:3]) / 1e6}, info


def measure(library, device, assembler, repeat):
    """A list of {stage: milliseconds}."""
    shape = (4096 * 14336,)
    args = eider.tensors([(None, "bf16", shape)] * 3)
    out = []
    for i in range(repeat + 2):
        times, info = compile_one(library, device, PROGRAM.format(1 + (i + 1) / 1024), args,
                                  assembler)
        out.append(times)
    return out[2:], info["assembler"]  # the first ones load LLVM and wake the device


def operands(library, name, dtype, rows, cols):
    """What a program over rows takes and gives: `dtype`, and f32 for one value per row."""
    shapes = {eider.FULL: (rows, cols), eider.PER_ROW: (rows, 1), eider.PER_COLUMN: (cols,)}
    triples = []
    for operand, kind, declared, extent in library.operands(name):
        usual = "f32" if extent == eider.PER_ROW else dtype
        shape = () if kind == eider.SCALAR else shapes[extent]
        triples.append((None, declared or INPUT_TYPES.get(operand, usual), shape))
    return eider.tensors(triples)


def programs(args):
    """A table of the library's programs over rows."""
    rows, cols = map(int, args.shape.split("x"))
    names, times, infos = None, {}, {}
    for i in range(args.repeat + 1):
        library = eider.Library(args.lib)
        device = library.device(args.device)
        table = library.rows(eider.TABLE_KERNELS)
        names = [n for n, (what, _) in table.items() if what == "program"]
        for name in names[:2] if i == 0 else names:  # the first ones load LLVM and wake the device
            given = operands(library, name, args.type, rows, cols)
            one, infos[name] = compile_one(library, device, name, given)
            if i:
                times.setdefault(name, []).append(one)
        library.so.eider_device_release(device)
        library.so.eider_context_destroy(library.context)
    print(f"{args.type}, {rows} x {cols}; milliseconds, median of {args.repeat}\n")
    print("| program | " + " | ".join(SHOWN) + " | registers | spilled bytes | config |")
    print("|---|" + "--:|" * (len(SHOWN) + 2) + "---|")
    for name in sorted(names, key=lambda n: -statistics.median(t["wall"] for t in times[n])):
        cells = (f"{statistics.median(t[s] for t in times[name]):.2f}" for s in SHOWN)
        info = infos[name]
        print(f"| {name} | " + " | ".join(cells) +
              f" | {info['registers']} | {info['spill_bytes']} | {info['config']} |")


def assemblers(library, device, args):
    """A table of one program with each assembler."""
    print(f"milliseconds, median (p90) of {args.repeat}\n")
    heads = " | ".join(SHOWN).replace("codegen", "codegen = ir + opt + ptx")
    print(f"| assembler | {heads} |")
    print("|---|" + "--:|" * len(SHOWN))
    for assembler in args.assembler or [None]:
        try:
            times, used = measure(library, device, assembler, args.repeat)
        except eider.EiderError as error:
            print(f"| {assembler} | {str(error).splitlines()[0]} |")
            continue
        cells = []
        for stage in SHOWN:
            values = sorted(t[stage] for t in times)
            cells.append(f"{statistics.median(values):.2f} ({values[len(values) * 9 // 10]:.2f})")
        print(f"| {used or assembler or 'none'} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--lib")
    parser.add_argument("--assembler", action="append",
                        help="may be repeated; default: the one that is used by default")
    parser.add_argument("--repeat", type=int, help="default: 40; with --programs 5")
    parser.add_argument("--programs", action="store_true", help="the library's, over rows")
    parser.add_argument("--shape", default="32768x4096", help="ROWSxLENGTH of --programs")
    parser.add_argument("--type", default="bf16", help="of --programs")
    args = parser.parse_args()
    args.repeat = args.repeat or (5 if args.programs else 40)
    os.environ["EIDER_CACHE_DIR"] = "0"  # nothing may be there from an earlier run
    library = eider.Library(args.lib)
    device = library.device(args.device)
    print(f"{library.describe(device).name.decode()}, eider {library.version}, "
          f"{time.strftime('%Y-%m-%d')}")
    if args.programs:
        programs(args)
    else:
        assemblers(library, device, args)


if __name__ == "__main__":
    main()
