#!/usr/bin/env python3
"""The bound that `eider sass` predicts, beside the rate that it measures.

    python3 bench/bound.py [--eider build/release/eider] [--counts 1,3,6,10,16] [--device cuda:0]

The arithmetic per byte is raised until the bound moves from the memory to a unit: tanh applied
once, three times, ... to f32 elements, one MUFU.TANH each.  The bound comes from the machine code
and the tables in src/codegen/sass_rates.def alone; the rate is the median of runs with a cold L2
cache.  Without a GPU there are bounds only.  Needs nvdisasm, nothing else.
"""
import argparse
import json
import subprocess
import sys

TOLERANCE = 0.10


def program(count):
    """tanh applied `count` times."""
    lines = ["t0 = x"] + [f"t{i + 1} = tanh(t{i})" for i in range(count)]
    return "; ".join(lines + [f"out = t{count}"])


def report(args, count):
    command = [args.eider, "sass", program(count), "--json", "--math", "approx",
               "--in", f"x=f32[{1 << args.log2_n}]:uniform"]
    command += ["--device", args.device] if args.device else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"bound.py: {' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eider", default="build/release/eider")
    parser.add_argument("--counts", default="1,3,6,10,16")
    parser.add_argument("--log2-n", type=int, default=26)
    parser.add_argument("--device", default="")
    args = parser.parse_args()
    worst = 0
    for i, count in enumerate(map(int, args.counts.split(","))):
        r = report(args, count)
        summary = r["summary"]
        bound, measured = summary["bound"], summary.get("measured_gb_per_s")
        mufu = next(l for l in r["limits"] if l["name"] == "MUFU")
        if i == 0:
            print(summary["assumptions"])
            print("| tanh | memory would allow | MUFU would allow | bound | predicted | measured "
                  "| ratio |\n|--:|--:|--:|---|--:|--:|--:|")
        ratio = measured / bound["gb_per_s"] if measured else None
        worst = max(worst, abs(ratio - 1)) if measured else worst
        print(f"| {count} | {r['limits'][0]['gb_per_s']:.0f} | {mufu['gb_per_s']:.0f} | "
              f"{bound['name']} | {bound['gb_per_s']:.0f} | "
              + (f"{measured:.0f} | {ratio:.3f} |" if measured else "no GPU | |"), flush=True)
    if worst > TOLERANCE:
        sys.exit(f"bound.py: a rate is {100 * worst:.0f} % from its bound")


if __name__ == "__main__":
    main()
