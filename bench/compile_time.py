#!/usr/bin/env python3
"""How long a cold expression takes to become a loaded kernel, stage by stage.

    python3 bench/compile_time.py [--device cuda:0] [--assembler NAME] [--repeat 40]

Each repeat compiles a program that no cache has seen (a literal differs).  `wall` is the clock
around eider_prepare; the stages are what the library itself reports.
"""
import argparse
import os
import statistics
import time

import eider

PROGRAM = "out = silu(gate) * up * {}"
STAGES = ["ir_ns", "opt_ns", "ptx_ns", "assemble_ns", "load_ns"]


def measure(library, device, assembler, repeat):
    """A list of {stage: milliseconds}."""
    shape = (4096 * 14336,)
    args = eider.tensors([(None, "bf16", shape)] * 3)
    out = []
    for i in range(repeat + 2):
        start = time.perf_counter()
        kernel = eider.Kernel(library, device, PROGRAM.format(1 + (i + 1) / 1024), args,
                              assembler=assembler)
        wall = (time.perf_counter() - start) * 1e3
        info = kernel.info()
        kernel.release()
        out.append({"wall": wall, **{s[:-3]: info[s] / 1e6 for s in STAGES},
                    "codegen": sum(info[s] for s in STAGES[:3]) / 1e6})
    return out[2:], info["assembler"]  # the first ones load LLVM and wake the device


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--lib")
    parser.add_argument("--assembler", action="append",
                        help="may be repeated; default: the one that is used by default")
    parser.add_argument("--repeat", type=int, default=40)
    args = parser.parse_args()
    os.environ["EIDER_CACHE_DIR"] = "0"  # nothing may be there from an earlier run
    library = eider.Library(args.lib)
    device = library.device(args.device)
    print(f"{library.describe(device).name.decode()}, eider {library.version}, "
          f"{time.strftime('%Y-%m-%d')}; milliseconds, median (p90) of {args.repeat}")
    print("| assembler | wall | ir | opt | ptx | codegen = ir + opt + ptx | assemble | load |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for assembler in args.assembler or [None]:
        try:
            times, used = measure(library, device, assembler, args.repeat)
        except eider.EiderError as error:
            print(f"| {assembler} | {str(error).splitlines()[0]} |")
            continue
        cells = []
        for stage in ("wall", "ir", "opt", "ptx", "codegen", "assemble", "load"):
            values = sorted(t[stage] for t in times)
            cells.append(f"{statistics.median(values):.2f} ({values[len(values) * 9 // 10]:.2f})")
        print(f"| {used or assembler or 'none'} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
