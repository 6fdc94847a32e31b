#!/usr/bin/env python3
"""The tuner: its cost beside Triton's, how often it chooses the same, what it gains.

    python3 bench/tune.py [PART ...] [--seconds N] [--out FILE.json]

    cost     swiglu over 128 configs, compiled, checked and timed: eider and Triton's autotuner
    repeat   20 tunings of swiglu in processes of their own: choices, and their regret
    gain     tuned against the default rule, over every activation and size class
    record   timings of a space of 500 configs, for tests/test_search.c (needs --records FILE)

Without a PART: cost, repeat and gain.  Every part ends within about --seconds (default 240) with
what it has.  Results are Markdown on standard output, after each part, and JSON in --out, which
is written again whenever something is new, so that nothing is lost when time runs out.

It uses the release build or the bundle it lies in, or --root FOLDER of one.  Nothing is read from
or left in the user's caches.  The second half of `cost` needs torch and triton.
"""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
PROGRAM = "out = silu(gate) * up"
SHAPE = (4096, 14336)
SPACES = {  # per backend
    "cuda": "vec=2|4|8|16,unroll=1|2,block=128|256,tiles=1|2,load=ca|cs,store=wb|cs",
    "cpu": "vec=8|16,unroll=1|2,tiles=4|8",
}
SPACE_500 = "vec=1|2|4|8|16,unroll=1|2|4|8,block=64|128|256|512|1024,tiles=1|2|4,load=ca|cs"
SIZES = "12,14,16,18,20,22,24,26,28,30"
BYTES = {"bf16": 2, "f32": 4}
TRITON = {"BLOCK": (256, 512, 1024, 2048, 4096, 8192, 16384, 32768), "num_warps": (1, 2, 4, 8),
          "num_stages": (1, 2, 3, 4)}


def place(root):
    """The program and the library of a build folder or a bundle."""
    roots = [root] if root else [os.environ.get("EIDER_ROOT"), HERE.parent.parent / "build/release",
                                 HERE.parent.parent]
    for folder in map(pathlib.Path, filter(None, roots)):
        for program, library in (("bin/eider", "lib/libeider.so"), ("eider", "libeider.so")):
            if (folder / program).exists() and (folder / library).exists():
                return str(folder / program), str(folder / library)
    sys.exit("tune.py: no eider: give --root, the folder of a bundle, or run ./dev build")


class Clock:
    """What is left of a part's time."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def run(command, clock, env=None):
    """A child's standard output, or why there is none."""
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=max(clock.left(), 1))
    except subprocess.TimeoutExpired:
        return None, "the time was over"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["it failed"])[-1]
    return done.stdout, None


def dots(text="."):
    print(text, end="", file=sys.stderr, flush=True)


class Bench:
    """The program, the library, a device and operands that stay."""

    def __init__(self, args):
        self.args = args
        self.program, library = place(args.root)
        os.environ["EIDER_HOME"] = args.scratch
        os.environ["EIDER_CACHE_DIR"] = "0"
        os.environ["EIDER_LIB"] = library
        import eider
        self.eider, self.library = eider, eider.Library(library)
        self.device = self.library.device(args.device)
        self.info = self.library.describe(self.device)
        self.backend = self.info.backend.decode()
        self.space = args.space or SPACES[self.backend]
        self.buffers, self.filled = [], None

    def operands(self, dtype, n_inputs, n_outputs, shape):
        """Contiguous operands, the inputs filled, in memory that later calls use again."""
        n = 1
        for extent in shape:
            n *= extent
        while len(self.buffers) < n_inputs + n_outputs or n * BYTES[dtype] > self.room:
            self.make_buffers(max(n_inputs + n_outputs, len(self.buffers)), n * BYTES[dtype])
        if self.filled != (dtype, self.room):
            self.fill(dtype)
        return self.eider.tensors([(b.value, dtype, shape)
                                   for b in self.buffers[:n_inputs + n_outputs]])

    def make_buffers(self, n, size):
        for buffer in self.buffers:
            self.library.so.eider_memory_free(self.device, buffer)
        self.room = max(size, getattr(self, "room", 0))
        self.buffers = [self.library.make("memory_alloc", self.device, self.room)
                        for _ in range(n)]
        self.filled = None

    def fill(self, dtype):
        """Normally distributed values, which repeat."""
        values = array.array("f", [random.gauss(0, 1) for _ in range(1 << 16)]).tobytes()
        if dtype == "bf16":  # the upper halves
            values = b"".join(values[i + 2:i + 4] for i in range(0, len(values), 4))
        for buffer in self.buffers:
            done = min(len(values), self.room)
            self.library.call("memory_copy", self.device, None, buffer, values, done,
                              self.eider.HOST_TO_DEVICE)
            while done < self.room:
                part = min(done, self.room - done)
                self.library.call("memory_copy", self.device, None, buffer.value + done, buffer,
                                  part, self.eider.DEVICE_TO_DEVICE)
                done += part
        self.library.call("stream_wait", self.device, None)
        self.filled = (dtype, self.room)

    def compare(self, text, operands, configs, rounds, repeat, clock):
        """{config: median in nanoseconds}: the configs take turns, so that clocks and
        temperature are the same for all; one round at least."""
        kernels = {config: self.eider.Kernel(self.library, self.device, text, operands, "auto",
                                             config) for config in configs}
        times = {config: [] for config in configs}
        for i in range(rounds):
            if i and clock.left() < 0:
                break
            for config, kernel in kernels.items():
                times[config] += kernel.time(operands, repeat)
        names = {config: kernel.info()["config"] for config, kernel in kernels.items()}
        for kernel in kernels.values():
            kernel.release()
        return {c: statistics.median(t) for c, t in times.items()}, names

    def tune_alone(self, clock, *more):
        """One tuning of PROGRAM in a process and a home of its own."""
        with tempfile.TemporaryDirectory(dir=self.args.scratch) as home:
            shape = ",".join(map(str, self.args.shape))
            text, error = run(
                [self.program, "tune", PROGRAM, "--shapes", f"bf16[{shape}]", "--space",
                 self.space, "--search", "exhaustive", "--device", self.args.device, "--json",
                 *more], clock, dict(os.environ, EIDER_HOME=home))
        return (json.loads(text)[0], None) if text else (None, error)


# ---- Cost -------------------------------------------------------------------------------------

TRITON_KERNEL = '''
import triton
import triton.language as tl

@triton.jit
def swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    g = tl.load(gate + i, mask=mask).to(tl.float32)
    u = tl.load(up + i, mask=mask).to(tl.float32)
    tl.store(out + i, (g * tl.sigmoid(g) * u).to(tl.bfloat16), mask=mask)
'''


def triton_cost(n):
    """In a child: seconds of Triton's first call over 128 configs, nothing in its caches."""
    import torch
    import triton
    import triton.testing
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "swiglu_kernel.py").write_text(TRITON_KERNEL, encoding="utf-8")
    sys.path.insert(0, folder)
    import swiglu_kernel
    configs = [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
               for block in TRITON["BLOCK"] for warps in TRITON["num_warps"]
               for stages in TRITON["num_stages"]]
    tuned = triton.autotune(configs=configs, key=["n"])(swiglu_kernel.swiglu)
    gate, up = (torch.randn(n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    out = torch.empty_like(gate)

    def call():
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, up, out, n)

    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    total = time.perf_counter() - start
    print(json.dumps({"configs": len(configs), "total_s": total, "version": triton.__version__,
                      "config": str(tuned.best_config),
                      "median_ns": 1e6 * triton.testing.do_bench(call, return_mode="median")}))


def cost(bench, clock, result):
    result["runs"] = []
    for _ in range(3):
        if result["runs"] and clock.left() < 30:
            break
        start = time.perf_counter()
        tuning, error = bench.tune_alone(clock)
        if error:
            result["error"] = error
            break
        result["runs"].append({"process_s": time.perf_counter() - start,
                               "configs": len(tuning["entries"]),
                               **{k: tuning[k] for k in ("total_s", "compile_s", "check_s",
                                                         "time_s", "config", "median_ns",
                                                         "copy_gb_per_s", "bytes")}})
        dots()
        yield
    if bench.backend == "cpu":
        result["triton"] = {"missing": "no GPU"}
        return
    n = bench.args.shape[0] * bench.args.shape[1]
    with tempfile.TemporaryDirectory(dir=bench.args.scratch) as folder:
        text, error = run([sys.executable, str(HERE), "triton", str(n)], clock,
                          dict(os.environ, TRITON_CACHE_DIR=folder))
    result["triton"] = json.loads(text.splitlines()[-1]) if text else {"missing": error}


def print_cost(result):
    print("\n| | configs | total s | compile | check | time | ms per config | configs per s | "
          "chosen | us |\n|---|--:|--:|--:|--:|--:|--:|--:|---|--:|")
    for r in result["runs"]:
        print(f"| eider | {r['configs']} | {r['total_s']:.2f} | {r['compile_s']:.2f} | "
              f"{r['check_s']:.2f} | {r['time_s']:.2f} | {1e3 * r['total_s'] / r['configs']:.1f} | "
              f"{r['configs'] / r['total_s']:.1f} | {r['config']} | {r['median_ns'] / 1e3:.2f} |")
    t = result.get("triton", {})
    if "total_s" in t:
        print(f"| Triton {t['version']} | {t['configs']} | {t['total_s']:.2f} | | | | "
              f"{1e3 * t['total_s'] / t['configs']:.1f} | {t['configs'] / t['total_s']:.1f} | "
              f"{t['config']} | {t['median_ns'] / 1e3:.2f} |")
    for what in filter(None, (result.get("error"), t.get("missing"))):
        print(f"\nNot measured: {what}")


# ---- Repeatability ----------------------------------------------------------------------------

def repeat(bench, clock, result):
    chosen, near = [], set()
    for _ in range(bench.args.times):
        if chosen and clock.left() < 30 + bench.args.seconds / 4:
            break
        tuning, error = bench.tune_alone(clock)
        if error:
            result["error"] = error
            break
        chosen.append(tuning["config"])
        near.update(e["config"] for e in tuning["entries"][:4] if e["samples_ns"])
        result["chosen"] = {c: chosen.count(c) for c in sorted(set(chosen))}
        dots()
        yield
    if not chosen:
        return
    operands = bench.operands("bf16", 2, 1, bench.args.shape)
    candidates = sorted(near | set(chosen))
    rounds = max(3, min(20, int(max(clock.left(), 10) / (0.1 * len(candidates)))))
    medians, _ = bench.compare(PROGRAM, operands, candidates, rounds, 50, clock)
    best = min(medians.values())
    result.update(times=len(chosen), best=min(medians, key=medians.get), n_long=len(medians),
                  samples=50 * rounds, regret={c: medians[c] / best - 1 for c in result["chosen"]})


def print_repeat(result):
    if result.get("error"):
        print(f"\nEnded early: {result['error']}")
    if "regret" not in result:
        return
    print(f"\n{result['times']} tunings in as many processes; regret against the best of the "
          f"{result['n_long']} configs in front, {result['samples']} runs each, in turns\n")
    print("| chosen | times | regret % |\n|---|--:|--:|")
    for config, n in sorted(result["chosen"].items(), key=lambda item: -item[1]):
        print(f"| {config} | {n} | {100 * result['regret'][config]:.2f} |")


# ---- Gain -------------------------------------------------------------------------------------

def gain_tasks(bench):
    """Every activation, type and size; sizes of a type stay together so that operands can,
    and activations are shuffled, so that what time allows is a fair sample."""
    import formulas
    rows = bench.library.activations()
    names = bench.args.rows.split(",") if bench.args.rows else sorted(rows)
    random.Random(1).shuffle(names)
    for name in names:
        for log2 in map(int, bench.args.log2.split(",")):
            results, needed, _ = formulas.signature(rows[name][0])
            yield (name, log2, formulas.program(name, rows[name][0]), len(needed),
                   len(results.split(",")))


def gain_one(bench, text, operands, clock):
    tuned = bench.eider.tune(bench.library, bench.device, text, operands, no_records=1,
                             limit=bench.args.limit,
                             budget_s=max(0.1, min(10.0, clock.left())),
                             search=3)  # directed, also where the space is small
    medians, names = bench.compare(text, operands, ["", tuned["config"]], 6, 10, clock)
    if names[""] == tuned["config"]:
        medians[tuned["config"]] = medians[""]
    return {"default_ns": medians[""], "tuned_ns": medians[tuned["config"]],
            "reaches": medians[tuned["config"]] / medians[""], "default": names[""],
            "tuned": tuned["config"], "tuning_s": tuned["total_s"], "n": tuned["n_timed"]}


def gain(bench, clock, result):
    tasks = list(gain_tasks(bench))
    types = bench.args.types.split(",")
    result["rows"], result["wanted"] = [], len(tasks) * len(types)
    for k, dtype in enumerate(types):
        part = Clock(clock.left() / (len(types) - k))
        largest = (1 << max(int(x) for x in bench.args.log2.split(",")),)
        bench.operands(dtype, 3, 3, largest)
        for name, log2, text, n_in, n_out in tasks:
            if part.left() < 2:
                break
            row = {"row": name, "type": dtype, "log2": log2}
            try:
                operands = bench.operands(dtype, n_in, n_out, (1 << log2,))
                row.update(gain_one(bench, text, operands, part))
            except bench.eider.EiderError as error:
                row["error"] = str(error)
            result["rows"].append(row)
            dots()
            yield


def print_gain(result):
    good = [r for r in result["rows"] if "error" not in r]
    print(f"\n{len(good)} of {result['wanted']} tunings; how much of the tuned kernel's speed the "
          "default rule reaches, both measured again, in turns\n")
    print("| type | elements | rows | mean % | least % | below 97 % | of | ms per tuning |")
    print("|---|--:|--:|--:|--:|--:|---|--:|")
    for key in sorted({(r["type"], r["log2"]) for r in good}):
        rows = [r for r in good if (r["type"], r["log2"]) == key]
        worst = min(rows, key=lambda r: r["reaches"])
        print(f"| {key[0]} | 2^{key[1]} | {len(rows)} | "
              f"{100 * statistics.geometric_mean(r['reaches'] for r in rows):.1f} | "
              f"{100 * worst['reaches']:.1f} | {sum(r['reaches'] < 0.97 for r in rows)} | "
              f"{worst['row']} | {1e3 * statistics.median(r['tuning_s'] for r in rows):.0f} |")
    far = sorted((r for r in good if r["reaches"] < 0.97), key=lambda r: r["reaches"])
    if far:
        print("\n| row | type | elements | default us | tuned us | reaches % | default | tuned |")
        print("|---|---|--:|--:|--:|--:|---|---|")
    for r in far[:25]:
        print(f"| {r['row']} | {r['type']} | 2^{r['log2']} | {r['default_ns'] / 1e3:.2f} | "
              f"{r['tuned_ns'] / 1e3:.2f} | {100 * r['reaches']:.1f} | {r['default']} | "
              f"{r['tuned']} |")
    for r in [r for r in result["rows"] if "error" in r][:5]:
        print(f"\n{r['row']} {r['type']} 2^{r['log2']}: {r['error']}")


# ---- Recordings -------------------------------------------------------------------------------

def record(bench, clock, result):
    if not bench.args.records:
        sys.exit("tune.py: record needs --records FILE")
    bench.space = SPACE_500 if bench.backend == "cuda" else bench.space
    tuning, error = bench.tune_alone(clock, "--budget", f"{max(clock.left() - 10, 5):.0f}s",
                                     "--export", str(pathlib.Path(bench.args.records).resolve()))
    if error:
        result["error"] = error
        return
    result.update(entries=len(tuning["entries"]), best=tuning["config"],
                  timed=sum(bool(e["samples_ns"]) for e in tuning["entries"]),
                  total_s=tuning["total_s"], file=bench.args.records)
    yield


def print_record(result):
    if "file" not in result:
        print(f"\nNot recorded: {result.get('error')}")
        return
    print(f"\n{result['file']}: {result['timed']} of {result['entries']} configs timed in "
          f"{result['total_s']:.1f} s; best {result['best']}")


PARTS = {"cost": (cost, print_cost), "repeat": (repeat, print_repeat), "gain": (gain, print_gain),
         "record": (record, print_record)}


def read_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("part", nargs="*", help="cost, repeat, gain, record")
    parser.add_argument("--seconds", type=float, default=240, help="for each part")
    parser.add_argument("--out", help="file for the results as JSON")
    parser.add_argument("--root", help="folder of a bundle or a build")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--shape", default=SHAPE, type=lambda t: tuple(map(int, t.split(","))))
    parser.add_argument("--space", help="of cost and repeat")
    parser.add_argument("--times", type=int, default=20, help="tunings of repeat")
    parser.add_argument("--rows", help="activations of gain, comma-separated (default: all)")
    parser.add_argument("--log2", default=SIZES, help="sizes of gain")
    parser.add_argument("--types", default="bf16,f32", help="of gain")
    parser.add_argument("--limit", type=int, default=40, help="configs of each tuning of gain")
    parser.add_argument("--records", help="file of record")
    args = parser.parse_args()
    args.part = args.part or ["cost", "repeat", "gain"]
    for part in args.part:
        if part not in PARTS:
            parser.error(f"no part {part!r}")
    return args


def main():
    if sys.argv[1:2] == ["triton"]:
        triton_cost(int(sys.argv[2]))
        return
    args = read_args()
    with tempfile.TemporaryDirectory(prefix="eider-tune-") as args.scratch:
        bench = Bench(args)
        results = {"device": bench.info.name.decode(), "version": bench.library.version,
                   "cores": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d")}
        print(f"{results['device']}, {results['cores']} cores, eider {results['version']}, "
              f"{results['date']}")
        for part in args.part:
            work, show = PARTS[part]
            result = results[part] = {}
            for _ in work(bench, Clock(args.seconds), result):
                save(args.out, results)
            dots("\n")
            print(f"\n### {part}")
            show(result)
            sys.stdout.flush()
            save(args.out, results)


def save(path, results):
    if path:
        pathlib.Path(path).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
