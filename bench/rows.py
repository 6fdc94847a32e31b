#!/usr/bin/env python3
"""Programs over rows side by side: eider, cuMemcpyDtoD, torch.compile, Liger-Kernel and quack.

    python3 bench/rows.py --out DIRECTORY --tune --warm 12 --quack FOLDER --seconds 560
    python3 bench/rows.py --out DIRECTORY --programs softmax --types bf16 --peers none
    python3 bench/rows.py --out DIRECTORY --shapes 32768x4096,8192x262144 --config row=256,keep=4

Needs a GPU, torch and triton; liger-kernel is used where it can be imported, quack from a folder of
bench/quack_aot.py.  Rates are GB/s of the bytes a program must move: every input once, every output
once; cuMemcpyDtoD copies half of them, rounded to 64 KiB.  The contenders take turns; below 1 GiB a
CUDA graph launches each over several sets of tensors, so that every launch finds the L2 cache cold;
medians of --repeat rounds.  torch.compile and most of Liger allocate what they return, from torch's
pool.
row_programs.py says what an error is, row_peers.py what a kernel of others does more or less.

Writes, line by line, so that a run that is cut keeps what it has: rows.csv, and gaps.csv with what
could not be measured and why.  Measuring happens in a process of its own: when it dies or a
contender takes more than --hang seconds, that contender becomes a gap and the rest goes on.
--resume skips the cells of an existing rows.csv and the gaps of gaps.csv.  Ends with the report of
row_report.py, in rows.md.

--warm N first compiles what torch and Liger need, in N processes, into the caches on disk (below
--cache), without measuring anything: Inductor's choices among configs are forgotten again, and made
when nobody else uses the GPU.
"""
import argparse
import collections
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import row_report
from row_report import GAP_COLUMNS, KEY


COPY_STEP = 1 << 16


def prepare_environment(cache):
    """Caches on disk; before torch is imported.  One thread compiles, in every process, so that
    the keys of Inductor's cache are the same."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{cache}/inductor")
    os.environ.setdefault("TRITON_CACHE_DIR", f"{cache}/triton")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


# ---- Measuring: the process that may die --------------------------------------------------------

class Bench:
    """What all cells share."""

    def __init__(self, args):
        import torch
        import eider
        self.torch, self.eider, self.args = torch, eider, args
        self.out = pathlib.Path(args.out)
        self.is_gpu = args.device != "cpu"
        self.library = eider.Library(args.lib)
        self.l2_bytes = 1 << 16
        if self.is_gpu:
            torch.empty(1, device="cuda")
            self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
            self.driver = ctypes.CDLL("libcuda.so.1")
        self.device = self.library.device("cuda:0" if self.is_gpu else "cpu")
        self.end = time.monotonic() + args.seconds
        self.gaps = {tuple(g[k] for k in KEY) + (g["contender"],)
                     for g in row_report.read(self.out / "gaps.csv")}
        info = self.library.describe(self.device)
        (self.out / "about.txt").write_text(
            f"{info.name.decode().strip()}, driver {info.driver}, eider {self.library.version}, "
            f"torch {torch.__version__}, math={args.math}, {args.repeat} rounds; "
            f"{time.strftime('%Y-%m-%d')}\n", encoding="utf-8")

    def now(self, contender):
        """What is to blame if we die or hang."""
        (self.out / "now.txt").write_text("\n".join(self.key + (contender,)), encoding="utf-8")

    def gap(self, contender, reason):
        row_report.append(self.out / "gaps.csv", GAP_COLUMNS,
                          dict(zip(GAP_COLUMNS, self.key + (contender, reason))))

    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream if self.is_gpu else 0)

    def wait(self):
        if self.is_gpu:
            self.torch.cuda.synchronize()

    # Each contender gives one function per set of tensors.

    def operands(self, cell, tensors):
        scalars = [(ctypes.c_float if t == "f32" else ctypes.c_int64)(v) for t, v in cell.scalars]
        given, left = iter(cell.given(tensors)), iter(scalars)
        triples = []
        for kind in cell.inputs:
            if isinstance(kind, tuple):
                triples.append((ctypes.addressof(next(left)), kind[0], ()))
            else:
                triples.append(self.triple(next(given)))
        array = self.eider.tensors(triples + [self.triple(t) for t in cell.written(tensors)])
        array.scalars = scalars
        return array

    @staticmethod
    def triple(tensor):
        from row_programs import TYPE_NAMES
        return tensor.data_ptr(), TYPE_NAMES[tensor.dtype], tuple(tensor.shape)

    def eider_calls(self, cell, config, notes):
        args = [self.operands(cell, t) for t in cell.sets]
        start = time.monotonic()
        kernel = self.eider.Kernel(self.library, self.device, cell.name, args[0], self.args.math,
                                   config)
        notes["compile_ms"] = f"{(time.monotonic() - start) * 1e3:.0f}"
        assert kernel.bytes(args[0]) == cell.bytes, (kernel.bytes(args[0]), cell.bytes)
        notes["config"] = kernel.info()["config"]
        notes["registers"] = kernel.info()["registers"]

        def call(a):
            kernel.launch(a, self.stream())
        return [lambda a=a: call(a) for a in args]

    def tuned_calls(self, cell, notes):
        start, more = time.monotonic(), {}
        if self.args.tune == "list":
            calls, more["config"] = self.best_of_list(cell)
        else:
            self.wait()
            tuning = self.eider.tune(
                self.library, self.device, cell.name, self.operands(cell, cell.sets[0]),
                self.args.math, no_records=1, limit=self.args.tune_limit,
                budget_s=self.args.tune_seconds, rounds=self.args.tune_repeat, warm_up_ms=10)
            calls = self.eider_calls(cell, tuning["config"], more)
        notes["tuned_config"] = more["config"]
        notes["tune_s"] = f"{time.monotonic() - start:.2f}"
        return calls

    def best_of_list(self, cell):
        tried, configs = [], []
        for config in candidates(cell):
            more = {}
            try:
                tried.append(self.eider_calls(cell, config, more))
            except self.eider.EiderError:
                continue  # not valid for this cell
            configs.append(more["config"])
        times = self.times(cell, tried, self.args.tune_repeat)
        best = min(range(len(times)), key=times.__getitem__)
        return tried[best], configs[best]

    def memcpy_calls(self, cell):
        width = cell.sets[0]["flat"].element_size()
        # Of other sizes the driver copies at two thirds of the rate.
        half = round(cell.bytes / 2 / COPY_STEP) * COPY_STEP or cell.bytes // 2
        full = cell.rows * cell.cols * width

        def copy(t):
            start = t["flat"].data_ptr()
            if not self.is_gpu:
                ctypes.memmove(start + 3 * full, start, half)
                return
            code = self.driver.cuMemcpyDtoDAsync_v2(
                ctypes.c_uint64(start + 3 * full), ctypes.c_uint64(start), ctypes.c_size_t(half),
                self.stream())
            assert code == 0, f"cuMemcpyDtoDAsync: {code}"
        return cell.each(copy)

    # A cell.

    def times(self, cell, contenders, repeat):
        if self.is_gpu:
            from compare import sets_us
            return sets_us(contenders, len(cell.sets), cell.small, repeat)
        out = []
        for calls in contenders:
            start = time.perf_counter()
            for _ in range(repeat):
                calls[0]()
            out.append((time.perf_counter() - start) / repeat * 1e6)
        return out

    def builders(self, cell, notes):
        """What makes the calls of each contender, in the order in which they take turns."""
        import row_peers
        out = {"eider": lambda: self.eider_calls(cell, self.args.config, notes),
               "memcpy": lambda: self.memcpy_calls(cell)}
        peers = {"torch": lambda: row_peers.torch_calls(cell),
                 "liger": lambda: row_peers.liger_calls(cell),
                 "quack": lambda: row_peers.quack_calls(cell, self.args.quack)}
        out.update((k, peers[k]) for k in peers if k in self.args.peers)
        if self.args.tune:
            out["tuned"] = lambda: self.tuned_calls(cell, notes)
        return out

    def contenders(self, cell, notes):
        """{contender: calls} of all that works."""
        from row_peers import OUTPUTS
        out = {}
        for name, build in self.builders(cell, notes).items():
            self.now(name)
            if self.key + (name,) in self.gaps:
                continue
            try:
                calls = build()
                if name != "memcpy":
                    error = cell.error(calls, OUTPUTS.get((name, cell.name)))
                    notes["error_" + name] = f"{error:.1e}"
                self.wait()
                out[name] = calls
            except Exception as error:  # a contender that fails is a gap in the table
                self.gap(name, f"{type(error).__name__}: {error}")
                self.wait()  # fails where the device does: then all that follows would
        return out

    def times_by_name(self, cell, calls):
        """{contender: microseconds}; who cannot be timed, in a graph above all, is left out."""
        try:
            return dict(zip(calls, self.times(cell, list(calls.values()), self.args.repeat)))
        except Exception as error:
            print(f"{' '.join(self.key)}: again without who fails: {error}", file=sys.stderr)
        self.wait()
        good = {}
        for name, one in calls.items():
            self.now(name)
            try:
                self.times(cell, [one], 1)
                good[name] = one
            except Exception as error:
                self.gap(name, f"{type(error).__name__}: {error}")
                self.wait()
        self.now("*")
        return dict(zip(good, self.times(cell, list(good.values()), self.args.repeat)))

    def measure(self, cell):
        notes = {}
        start = time.monotonic()
        calls = self.contenders(cell, notes)
        self.now("*")
        built = time.monotonic()
        times = self.times_by_name(cell, calls)
        notes.update({c: f"{cell.bytes / us / 1e3:.1f}" for c, us in times.items()})
        notes.update(zip(KEY, self.key), bytes=cell.bytes, build_s=f"{built - start:.1f}",
                     time_s=f"{time.monotonic() - built:.1f}")
        return notes

    def run(self, cells):
        """Cells one after the other, until the time is over."""
        from row_programs import Cell, Memory
        memory, held = None, None
        for name, dtype, rows, cols in cells:
            if time.monotonic() > self.end:
                print("out of time", file=sys.stderr)
                return
            self.key = (name, dtype, str(rows), str(cols))
            if self.key + ("*",) in self.gaps:
                continue
            self.now("*")
            if held != (dtype, rows, cols):
                memory = None
                self.empty()
                memory = Memory(dtype, rows, cols, "cuda" if self.is_gpu else "cpu")
                held = (dtype, rows, cols)
            cell = Cell(name, memory, dtype, self.l2_bytes)
            result = self.measure(cell)
            row_report.append(self.out / "rows.csv", row_report.COLUMNS, result)
            print(row_report.line(result), flush=True)
            del cell
            self.torch._dynamo.reset()
            self.empty()

    def empty(self):
        if self.is_gpu:
            self.torch.cuda.empty_cache()


def candidates(cell):
    """Configs worth trying: accesses of 8 and 16 bytes, 1 to 8 vectors of a row per thread."""
    width = cell.sets[0]["x"].element_size()
    n_full = sum(k in ("x", "y", "dy") for k in cell.inputs)
    for access in (8, 16):
        vec = access // width
        vectors = -(-cell.cols // vec)
        for row in (8, 16, 32, 64, 128, 256, 512, 1024):
            each = -(-vectors // row)
            for keep in sorted({min(each, k) for k in (1, 2, 4, 8)}):
                registers = keep * vec * n_full
                if registers > (32 if row == 1024 else 64) or (each > 8 and row < 512):
                    continue
                if keep < each and row < 1024:
                    continue  # a longer row wants more threads first
                for block in sorted({max(row, 128), max(row, 256)}):
                    yield f"vec={vec},row={row},block={block},keep={keep},unroll=1"


# ---- Warming: caches on disk --------------------------------------------------------------------

def bare_tensors(name, dtype, rows, cols, device):
    """What a program takes, of no particular values."""
    import torch
    from row_programs import COLUMN, FULL, PROGRAMS, TORCH_TYPES
    kind, tensors = TORCH_TYPES[dtype], {}
    for key in PROGRAMS[name][1] + ["spare"]:
        if key == "target":
            tensors[key] = torch.zeros(rows, 1, dtype=torch.int64, device=device)
        elif key in FULL:
            tensors[key] = torch.empty(rows, cols, dtype=kind, device=device)
        elif key in COLUMN:
            tensors[key] = torch.empty(cols, dtype=kind, device=device)
        elif isinstance(key, str):
            tensors[key] = torch.empty(rows, 1, device=device)
    tensors.setdefault("x", tensors.get("y"))
    return tensors


def warm_cell(name, dtype, rows, cols, peers, device):
    """Compiles what a cell needs of torch and Liger, and launches it once.  What fails here is
    found again when it is measured."""
    import types
    import torch
    import row_peers
    from row_programs import Cell
    tensors = bare_tensors(name, dtype, rows, cols, device)
    memory = types.SimpleNamespace(rows=rows, cols=cols, device=device, get=lambda _: [tensors])
    cell, failed = Cell(name, memory, dtype, 1), []
    for peer in peers:
        try:
            getattr(row_peers, peer + "_calls")(cell)[0]()
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            failed.append(f"{peer}: {type(error).__name__}: {str(error)[:200]}")
    tensors.clear()
    torch._dynamo.reset()
    if device == "cuda":
        torch.cuda.empty_cache()
    return failed


def warm(args, cells, seconds):
    """As many cells at once as processes and the GPU's memory allow."""
    import concurrent.futures as futures
    import multiprocessing
    from row_programs import byte_count
    peers = [p for p in args.peers if p in ("torch", "liger")]
    end = time.monotonic() + seconds
    todo = sorted(cells, key=lambda c: byte_count(*c), reverse=True)
    pool = futures.ProcessPoolExecutor(args.warm, multiprocessing.get_context("spawn"))
    running, used, done, problems = {}, 0, 0, collections.Counter()
    while (todo or running) and time.monotonic() < end:
        for cell in list(todo):
            needs = 2 * byte_count(*cell)  # torch's result, a copy of Liger's input
            if len(running) < args.warm and (not running or used + needs < args.warm_bytes):
                todo.remove(cell)
                running[pool.submit(warm_cell, *cell, peers, args.device)] = needs
                used += needs
        finished, _ = futures.wait(running, 1, futures.FIRST_COMPLETED)
        for future in finished:
            used -= running.pop(future)
            done += 1
            problems.update([repr(future.exception())] if future.exception() else future.result())
    workers = list(pool._processes.values())  # a hung compiler must not outlive us
    pool.shutdown(wait=False, cancel_futures=True)
    time.sleep(0.2)
    for process in workers:
        process.kill()
    chosen = list(pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"))
    for path in chosen:
        path.unlink()
    for text, n in problems.items():
        print(f"{n} x {text}", file=sys.stderr)
    print(f"warmed {done} of {len(cells)} cells in {seconds - (end - time.monotonic()):.0f} s, "
          f"{len(chosen)} choices forgotten", flush=True)


# ---- Watching -----------------------------------------------------------------------------------

def watch(args, end):
    """Runs the measuring process until it ends by itself; what kills it becomes a gap, and a peer
    that kills it twice by hanging, or four times by crashing, does not come again."""
    out, peers, killers = pathlib.Path(args.out), list(args.peers), []
    for _ in range(args.deaths + 1):
        status, reason = measure_apart(args, out / "now.txt", peers, end)
        if status == 0:
            return
        key = (out / "now.txt").read_text(encoding="utf-8").split("\n")
        if len(key) != len(GAP_COLUMNS) - 1:
            sys.exit(f"the measuring process died before the first cell ({status})")
        killers += [key[-1]] * (1 if "died" in reason else 2)
        if key[-1] in peers and killers.count(key[-1]) >= 4:
            peers.remove(key[-1])
            reason += "; not tried any more"
        if key[-1] in ("eider", "memcpy"):
            key[-1] = "*"  # nothing to compare with
        print(f"{' '.join(key)}: {reason}", file=sys.stderr, flush=True)
        row_report.append(out / "gaps.csv", GAP_COLUMNS, dict(zip(GAP_COLUMNS, key + [reason])))
    print("the measuring process died too often", file=sys.stderr)


def measure_apart(args, now, peers, end):
    """The exit status of one measuring process, and why it is not 0."""
    now.write_text("", encoding="utf-8")
    left = max(0.0, end - time.monotonic())
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child"] + sys.argv[1:] +
                             ["--resume", "--peers", ",".join(peers) or "none", "--seconds",
                              f"{left:.0f}"])
    while child.poll() is None:
        time.sleep(0.2)
        if time.time() - now.stat().st_mtime > args.hang:
            child.kill()
            child.wait()
            return child.returncode, f"took more than {args.hang:.0f} s"
    return child.returncode, f"the process died ({child.returncode})"


def wanted(args):
    """[(program, type, rows, length)] that are not in rows.csv yet."""
    from row_programs import PROGRAMS
    known = {tuple(r[k] for k in KEY) for r in row_report.read(pathlib.Path(args.out) / "rows.csv")}
    names = args.programs.split(",") if args.programs else list(PROGRAMS)
    cells = [(name, dtype) + tuple(map(int, shape.split("x"))) for dtype in args.types.split(",")
             for shape in args.shapes.split(",") for name in names]
    return [c for c in cells if tuple(map(str, c)) not in known]


def arguments():
    from row_programs import SHAPES
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--out", required=True, help="where rows.csv, gaps.csv and rows.md go")
    add("--lib", help="libeider.so; default: $EIDER_LIB, else build/release")
    add("--programs", help="by commas; default: all")
    add("--types", default="bf16,f32")
    add("--shapes", default=SHAPES, help="ROWSxLENGTH, by commas")
    add("--peers", default="torch,liger,quack", help="by commas, or none")
    add("--quack", help="a folder of quack_aot.py")
    add("--math", default="auto", choices=["auto", "approx", "fast", "exact"])
    add("--config", default="", help="an eider config, such as row=256,keep=4")
    add("--tune", nargs="?", const="tuner", choices=["tuner", "list"],
        help="also tuned: by eider's tuner, or the best of a list of configs")
    add("--tune-limit", type=int, default=40, help="configs that the tuner times")
    add("--tune-seconds", type=float, default=1.5, help="of a tuning")
    add("--tune-repeat", type=int, default=5, help="rounds when configs are compared")
    add("--repeat", type=int, default=10, help="rounds")
    add("--warm", type=int, default=0, metavar="N", help="first compile in N processes")
    add("--warm-bytes", type=float, default=80e9, help="of the GPU's memory, meanwhile")
    add("--warm-seconds", type=float, default=200, help="give up warming after this")
    add("--warm-only", action="store_true")
    add("--cache", default=f"{tempfile.gettempdir()}/eider-rows-cache")
    add("--resume", action="store_true", help="skip what rows.csv has")
    add("--seconds", type=float, default=460, help="start no cell after this")
    add("--hang", type=float, default=40, help="seconds that a contender may take")
    add("--deaths", type=int, default=10, help="of the measuring process, at most")
    add("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try this program itself")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p in ("torch", "liger", "quack")]
    if not args.quack and "quack" in args.peers:
        args.peers.remove("quack")
    return args


def main():
    args = arguments()
    if args.child:
        Bench(args).run(wanted(args))
        sys.stdout.flush()
        os._exit(0)  # no matter what a contender left running
    end = time.monotonic() + args.seconds
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if not args.resume:
        for name in ("rows.csv", "gaps.csv"):
            (out / name).unlink(missing_ok=True)
    if args.warm:
        warm(args, wanted(args), min(args.warm_seconds, args.seconds))
    if not args.warm_only:
        watch(args, end)
        (out / "command.txt").write_text(" ".join(sys.argv) + "\n", encoding="utf-8")
        row_report.write(out)


def early_cache():
    """--cache of the command line, before anything imports torch."""
    for k, word in enumerate(sys.argv):
        if word == "--cache" and k + 1 < len(sys.argv):
            return sys.argv[k + 1]
        if word.startswith("--cache="):
            return word[8:]
    return f"{tempfile.gettempdir()}/eider-rows-cache"


if __name__ == "__main__":
    prepare_environment(early_cache())
    main()
