#!/usr/bin/env python3
"""The tuner: its cost beside Triton's, how often it chooses the same, what it gains.

    python3 bench/tune.py cost                    swiglu over 128 configs, eider and Triton
    python3 bench/tune.py repeat --times 20       the same tuning again and again
    python3 bench/tune.py gain --log2 16,22,26    tuned against the default rule, every activation
    python3 bench/tune.py record FILE             timings of a space of 500 configs, for replays

Runs `eider`, from $EIDER, or beside the release build or bundle.  Nothing is read from or left
in the user's caches.  `cost` needs torch and triton for its second half and says when they are
missing.  Every mode prints JSON with --json, else a table.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "out = silu(gate) * up"
SHAPE = "bf16[4096,14336]"
SPACE_128 = "vec=2|4|8|16,unroll=1|2,block=128|256,tiles=1|2,load=ca|cs,store=wb|cs"
SPACE_500 = "vec=1|2|4|8|16,unroll=1|2|4|8,block=64|128|256|512|1024,tiles=1|2|4,load=ca|cs"
LONG_REPEAT = 1000


def find_eider():
    places = [os.environ.get("EIDER"), ROOT / "build/release/eider", ROOT / "bin/eider",
              ROOT / "../../../bin/eider", shutil.which("eider")]
    for place in places:
        if place and pathlib.Path(place).exists():
            return str(place)
    sys.exit("no eider: set EIDER, or run ./dev build")


EIDER = find_eider()


class Scratch:
    """A folder that stands for the user's caches, and goes away."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="eider-tune-")
        self.env = dict(os.environ, EIDER_HOME=self.folder, EIDER_CACHE_DIR="0",
                        TRITON_CACHE_DIR=self.folder + "/triton")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *args):
        done = subprocess.run([EIDER, *args], env=self.env, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"eider {args[0]} ended with {done.returncode}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def tune(self, program, *args):
        return self.run("tune", program, "--json", *args)[0]


def long_median(scratch, args, config, *more):
    """Nanoseconds of a config by a long measurement."""
    return scratch.run("bench", args.program, *inputs(args), "--set", config, "--json",
                       "--repeat", str(LONG_REPEAT), "--device", args.device, *more)["median_ns"]


def inputs(args):
    return ["--in", f"gate={args.shape}", "--in", f"up={args.shape}"]


# ---- Cost -------------------------------------------------------------------------------------

def triton_cost(args):
    """Seconds of Triton's first call over 128 configs, or why there are none."""
    try:
        import torch
        import triton
        import triton.language as tl
    except ImportError as error:
        return {"missing": str(error)}
    if not torch.cuda.is_available():
        return {"missing": "no GPU"}
    source = pathlib.Path(tempfile.mkdtemp()) / "swiglu_kernel.py"
    source.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def swiglu(gate, up, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = i < n\n"
        "    g = tl.load(gate + i, mask=mask).to(tl.float32)\n"
        "    u = tl.load(up + i, mask=mask).to(tl.float32)\n"
        "    tl.store(out + i, (g * tl.sigmoid(g) * u).to(tl.bfloat16), mask=mask)\n")
    sys.path.insert(0, str(source.parent))
    import swiglu_kernel
    configs = [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
               for block in (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
               for warps in (1, 2, 4, 8) for stages in (1, 2, 3, 4)]
    tuned = triton.autotune(configs=configs, key=["n"])(swiglu_kernel.swiglu)
    n = 4096 * 14336
    gate, up = (torch.randn(n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    out = torch.empty_like(gate)
    torch.cuda.synchronize()
    start = time.perf_counter()
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, up, out, n)
    torch.cuda.synchronize()
    return {"configs": len(configs), "total_s": time.perf_counter() - start,
            "best": str(tuned.best_config), "version": triton.__version__}


def cost(args):
    runs = []
    for _ in range(args.times or 3):
        with Scratch() as scratch:
            start = time.perf_counter()
            result = scratch.tune(args.program, *inputs(args), "--space", args.space, "--search",
                                  "exhaustive", "--device", args.device)
            runs.append({"process_s": time.perf_counter() - start,
                         "entries": len(result["entries"]),
                         **{k: result[k] for k in ("total_s", "compile_s", "check_s", "time_s",
                                                   "config", "median_ns", "copy_gb_per_s")}})
    best = min(runs, key=lambda r: r["total_s"])
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="triton-")
    return {"eider": runs, "eider_ms_per_config": 1e3 * best["total_s"] / best["entries"],
            "triton": triton_cost(args) if args.device != "cpu" else {"missing": "no GPU"}}


def print_cost(r):
    print("| | configs | total s | compile | check | time | ms per config |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for run in r["eider"]:
        print(f"| eider | {run['entries']} | {run['total_s']:.2f} | {run['compile_s']:.2f} | "
              f"{run['check_s']:.2f} | {run['time_s']:.2f} | "
              f"{1e3 * run['total_s'] / run['entries']:.1f} |")
    t = r["triton"]
    if "missing" in t:
        print(f"\nTriton: not run ({t['missing']})")
    else:
        print(f"| Triton {t['version']} | {t['configs']} | {t['total_s']:.2f} | | | | "
              f"{1e3 * t['total_s'] / t['configs']:.1f} |")


# ---- Repeatability ----------------------------------------------------------------------------

def repeat(args):
    chosen, candidates = [], set()
    with Scratch() as scratch:
        for _ in range(args.times or 20):
            result = scratch.tune(args.program, *inputs(args), "--space", args.space, "--force",
                                  "--search", args.search, "--device", args.device)
            chosen.append(result["config"])
            candidates.update(e["config"] for e in result["entries"][:5])
        candidates.update(chosen)
        # Turns, so that clocks are the same for all.
        long = {c: [] for c in candidates}
        for _ in range(3):
            for config in sorted(candidates):
                long[config].append(long_median(scratch, args, config))
    long = {c: statistics.median(v) for c, v in long.items()}
    best = min(long.values())
    return {"times": len(chosen), "chosen": {c: chosen.count(c) for c in set(chosen)},
            "regret": {c: long[c] / best - 1 for c in set(chosen)},
            "best": min(long, key=long.get), "n_long": len(long)}


def print_repeat(r):
    print(f"{r['times']} tunings; regret against the best of {r['n_long']} by a long measurement\n")
    print("| config | chosen | regret % |")
    print("|---|--:|--:|")
    for config, n in sorted(r["chosen"].items(), key=lambda c: -c[1]):
        print(f"| {config} | {n} | {100 * r['regret'][config]:.2f} |")


# ---- Gain -------------------------------------------------------------------------------------

def gain(args):
    import eider
    import formulas
    library = eider.Library(str(pathlib.Path(EIDER).parent.parent / "lib/libeider.so")
                            if (pathlib.Path(EIDER).parent.parent / "lib/libeider.so").exists()
                            else None)
    device = library.device(args.device)
    rows = library.activations()
    names = args.rows.split(",") if args.rows else list(rows)
    out = []
    with Scratch() as scratch:
        for name in names:
            results, needed, _ = formulas.signature(rows[name][0])
            text = formulas.program(name, rows[name][0])
            for log2 in map(int, args.log2.split(",")):
                out.append({"row": name, "log2": log2,
                            **compare(library, device, scratch, args, text, needed,
                                      len(results.split(",")), log2)})
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {"rows": out}


def compare(library, device, scratch, args, text, needed, n_outputs, log2):
    """Medians of the default rule's and the tuned config, the two taking turns."""
    import eider
    n, width = 1 << log2, {"bf16": 2, "f16": 2, "f32": 4}[args.type]
    bind = [a for name in needed for a in ("--in", f"{name}={args.type}[{n}]")]
    tuned = scratch.tune(text, *bind, "--device", args.device, "--search", "directed")
    buffers = []
    for _ in range(len(needed) + n_outputs):
        buffers.append(library.make("memory_alloc", device, ctypes.c_size_t(n * width)))
    operands = eider.tensors([(b.value, args.type, (n,)) for b in buffers])
    kernels = [eider.Kernel(library, device, text, operands, "auto", config)
               for config in ("", tuned["config"])]
    times = [[], []]
    for _ in range(7):
        for k, kernel in enumerate(kernels):
            times[k] += kernel.time(operands, 15)
    default, best = (statistics.median(t) for t in times)
    result = {"default_ns": default, "tuned_ns": best, "default_over_tuned": best / default,
              "default": kernels[0].info()["config"], "tuned": tuned["config"]}
    for kernel in kernels:
        kernel.release()
    for buffer in buffers:
        library.so.eider_memory_free(device, buffer)
    return result


def print_gain(r):
    print("| row | log2 n | default us | tuned us | default reaches | tuned config |")
    print("|---|--:|--:|--:|--:|---|")
    for row in sorted(r["rows"], key=lambda x: x["default_over_tuned"]):
        print(f"| {row['row']} | {row['log2']} | {row['default_ns'] / 1e3:.2f} | "
              f"{row['tuned_ns'] / 1e3:.2f} | {100 * row['default_over_tuned']:.1f} % | "
              f"{row['tuned']} |")
    for log2 in sorted({row["log2"] for row in r["rows"]}):
        ratios = [x["default_over_tuned"] for x in r["rows"] if x["log2"] == log2]
        print(f"\n2^{log2}: the default rule reaches {100 * statistics.geometric_mean(ratios):.1f} "
              f"% of tuned (geometric mean), {100 * min(ratios):.1f} % at least")


# ---- Recordings -------------------------------------------------------------------------------

def record(args):
    with Scratch() as scratch:
        result = scratch.tune(args.program, *inputs(args), "--space", SPACE_500, "--search",
                              "exhaustive", "--device", args.device, "--budget", "10m",
                              "--export", str(pathlib.Path(args.file).resolve()))
    timed = [e for e in result["entries"] if e["samples_ns"]]
    return {"entries": len(result["entries"]), "timed": len(timed), "file": args.file,
            "best": result["config"], "total_s": result["total_s"]}


def print_record(r):
    print(f"{r['file']}: {r['timed']} of {r['entries']} configs timed in {r['total_s']:.1f} s; "
          f"best {r['best']}")


MODES = {"cost": (cost, print_cost), "repeat": (repeat, print_repeat), "gain": (gain, print_gain),
         "record": (record, print_record)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("file", nargs="?", help="of record")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--shape", default=SHAPE)
    parser.add_argument("--space", default=SPACE_128)
    parser.add_argument("--search", default="exhaustive")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--times", type=int)
    parser.add_argument("--rows", help="activations of gain, comma-separated (default: all)")
    parser.add_argument("--log2", default="16,22,26", help="elements of gain")
    parser.add_argument("--type", default="bf16")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.mode == "record" and not args.file:
        parser.error("record needs a FILE")
    work, show = MODES[args.mode]
    result = work(args)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)


if __name__ == "__main__":
    main()
