#!/usr/bin/env python3
"""Elementwise kernels side by side: eider, cuMemcpyDtoD, torch.compile and Triton.

    python3 bench/compare.py --out DIRECTORY
    python3 bench/compare.py --out DIRECTORY --rows swiglu,dswiglu --types f32 --sizes 28
    python3 bench/compare.py --out DIRECTORY --rows swiglu --sizes 12-30 --torch default

Needs a GPU, torch and triton.  Every contender of a row reads and writes the same number of
bytes of the same type.  Rates are GB/s of the bytes a row must move: inputs once, outputs once.

How it is measured.  Large sizes: the contenders take turns, each call between two CUDA events,
median of --repeat rounds; a row's tensors exceed the L2 cache, so each call finds it cold.  Small
sizes: one CUDA graph per contender launches it over several sets of tensors, as many as exceed
the L2 cache three times but at most 64, and the time of a replay is divided by the launches;
median over replays.
eider runs its default config unless --config or --tune says otherwise; Triton's best of 10
configs is found per row, type and size; torch.compile chooses as it does.

Writes compare.csv line by line, so a run that is cut keeps what it has, and compare.md.
"""
import argparse
import csv
import ctypes
import importlib.util
import pathlib
import random
import statistics
import sys
import time

import torch
import triton

import eider
import formulas

TORCH_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
TRITON_CONFIGS = [(block, warps) for block in (1024, 2048, 4096) for warps in (4, 8, 16)]
TRITON_CONFIGS.append((512, 4))
TUNE_CONFIGS = [f"vec={v},unroll={u},block={b}" for v in (2, 4, 8) for u in (1, 2)
                for b in (128, 256, 1024)]
TUNE_CONFIGS += [f"vec=8,unroll={u},block=256,load={load},store={store}" for u in (1, 2)
                 for load, store in (("nc", "wb"), ("ca", "cs"), ("cs", "cs"), ("noalloc", "cs"),
                                     ("first", "first"))]
SMALL_BYTES = 1 << 30  # below this, launches from Python would be seen in the times
COLUMNS = ["row", "type", "log2_n", "bytes", "eider", "memcpy", "torch", "torch_max", "triton",
           "eider_us", "best_other", "ratio", "error", "registers", "config", "tuned",
           "tuned_config", "triton_config"]


def load(source, name, directory):
    """A module from generated source, in a file because Triton reads it."""
    path = directory / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def events_us(calls, repeat):
    """Median microseconds of each call, the calls taking turns, in another order every time: what
    one leaves in the L2 cache to be written counts for the next."""
    for call in calls:
        call()
        call()
    pairs = [[(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
              for _ in calls] for _ in range(repeat)]
    torch.cuda.synchronize()
    for number, round_pairs in enumerate(pairs):
        turns = list(zip(calls, round_pairs))
        random.Random(number).shuffle(turns)
        for call, (start, stop) in turns:
            start.record()
            call()
            stop.record()
    torch.cuda.synchronize()
    return [statistics.median(p[k][0].elapsed_time(p[k][1]) * 1e3 for p in pairs)
            for k in range(len(calls))]


def graph_us(calls, repeat):
    """Median microseconds of one launch; each of `calls` makes (launches, function)."""
    graphs = []
    for launches, function in calls:
        function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        graphs.append((launches, graph))
    times = events_us([graph.replay for _, graph in graphs], repeat)
    return [us / launches for us, (launches, _) in zip(times, graphs)]


def sets_us(contenders, n_sets, small, repeat):
    """Median microseconds of each contender, measured together; each has a call per set of
    operands, of which large ones need the first only."""
    if not small:
        return events_us([c[0] for c in contenders], repeat)

    def all_sets(calls):
        return lambda: [call() for call in calls]
    rounds = max(1, 32 // n_sets)
    return graph_us([(rounds * len(c), all_sets(c * rounds)) for c in contenders], repeat)


class Row:
    """One activation at one type and size, with the tensors of every contender."""

    def __init__(self, bench, name, dtype, log2_n):
        self.bench, self.name, self.dtype, self.n = bench, name, dtype, 1 << log2_n
        self.log2_n = log2_n
        results, needed, _ = formulas.signature(bench.rows[name][0])
        self.n_outputs = len(results.split(","))
        width = torch.finfo(TORCH_TYPES[dtype]).bits // 8
        self.bytes = (len(needed) + self.n_outputs) * self.n * width
        self.small = self.bytes < SMALL_BYTES
        n_sets = min(64, -(-3 * bench.l2_bytes // self.bytes)) if self.small else 1
        self.sets = [self.tensors(len(needed)) for _ in range(n_sets)]

    def tensors(self, n_inputs):
        kind = dict(dtype=TORCH_TYPES[self.dtype], device="cuda")
        inputs = [torch.randn(self.n, **kind) for _ in range(n_inputs)]
        outputs = [torch.empty(self.n, **kind) for _ in range(self.n_outputs)]
        return inputs, outputs

    # Each contender gives one function per set of tensors.

    def eider(self, config):
        library = self.bench.library
        text = formulas.program(self.name, self.bench.rows[self.name][0])
        args = [eider.tensors([(t.data_ptr(), self.dtype, (self.n,)) for t in i + o])
                for i, o in self.sets]
        kernel = eider.Kernel(library, self.bench.device, text, args[0], self.bench.math, config)
        assert kernel.bytes(args[0]) == self.bytes, (kernel.bytes(args[0]), self.bytes)

        def call(a):
            kernel.launch(a, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return kernel, [lambda a=a: call(a) for a in args]

    def memcpy(self):
        """cuMemcpyDtoDAsync of half the bytes, which reads and writes all of them."""
        copy = self.bench.driver.cuMemcpyDtoDAsync_v2
        halves = []
        for _ in self.sets:
            halves.append([torch.empty(self.bytes // 2, dtype=torch.uint8, device="cuda")
                           for _ in range(2)])

        def call(to, start):
            code = copy(ctypes.c_uint64(to.data_ptr()), ctypes.c_uint64(start.data_ptr()),
                        ctypes.c_size_t(self.bytes // 2),
                        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            assert code == 0, f"cuMemcpyDtoDAsync: {code}"
        return [lambda h=h: call(*h) for h in halves]

    def torch(self, mode):
        function = torch.compile(getattr(self.bench.torch_code, "t_" + self.name), mode=mode,
                                 dynamic=False, fullgraph=True)
        return [lambda i=i: function(*i) for i, _ in self.sets]

    def triton(self):
        kernel = getattr(self.bench.triton_code(self.dtype), "k_" + self.name)

        def calls(block, warps):
            grid = (triton.cdiv(self.n, block),)
            return [lambda i=i, o=o: kernel[grid](*i, *o, self.n, BLOCK=block, num_warps=warps)
                    for i, o in self.sets]
        candidates = [calls(*config) for config in TRITON_CONFIGS]
        times = self.time(candidates, self.bench.args.tune_repeat)
        best = min(range(len(times)), key=times.__getitem__)
        return f"block={TRITON_CONFIGS[best][0]},warps={TRITON_CONFIGS[best][1]}", candidates[best]

    def time(self, contenders, repeat):
        return sets_us(contenders, len(self.sets), self.small, repeat)

    def error(self, calls):
        """Largest |eider - formula| / (1 + |formula|) over the first set."""
        calls[0]()
        inputs, outputs = self.sets[0]
        n = min(self.n, 1 << 22)
        want = getattr(self.bench.torch_code, "f_" + self.name)(*(t[:n].float() for t in inputs))
        want = want if isinstance(want, tuple) else (want,)
        return max(((o[:n].float() - w).abs() / (1 + w.abs())).max().item()
                   for o, w in zip(outputs, want))


class Bench:
    """What all rows share."""

    def __init__(self, args):
        self.args, self.math = args, args.math
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        torch.cuda.init()
        torch.empty(1, device="cuda")
        self.library = eider.Library(args.lib)
        self.device = self.library.device("cuda:0")
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.rows = self.library.activations()
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.torch_code = load(formulas.torch_source(self.rows), "torch_code", self.out)
        self.triton_modules = {}
        self.results = []
        self.started = time.monotonic()
        self.torch_seconds = 0.0

    def triton_code(self, dtype):
        if dtype not in self.triton_modules:
            source = formulas.triton_source(self.rows, "f32" if dtype == "f32" else "bf16")
            self.triton_modules[dtype] = load(source, "triton_code_" + dtype, self.out)
        return self.triton_modules[dtype]

    def contenders(self, row):
        """{column: calls} of everything that could be built, and what is known about it."""
        calls, notes = {}, {}
        kernel, calls["eider"] = row.eider(self.args.config)
        notes["error"] = f"{row.error(calls['eider']):.1e}"
        notes["config"], notes["registers"] = kernel.info()["config"], kernel.info()["registers"]
        calls["memcpy"] = row.memcpy()
        if not self.args.no_triton:
            try:
                notes["triton_config"], calls["triton"] = row.triton()
            except Exception as error:
                print(f"{row.name}: triton: {str(error)[:300]}", file=sys.stderr)
        modes = {"torch": "default", "torch_max": "max-autotune-no-cudagraphs"}
        for column, mode in modes.items():
            if not self.wants_torch(row, column):
                continue
            start = time.monotonic()
            try:
                calls[column] = row.torch(mode)
                calls[column][0]()
                torch.cuda.synchronize()
            except Exception as error:  # a contender that fails is a gap in the table
                calls.pop(column, None)
                print(f"{row.name}: {column}: {str(error)[:300]}", file=sys.stderr)
            self.torch_seconds += time.monotonic() - start
        if self.args.tune:
            self.tune(row, calls, notes)
        return calls, notes

    def wants_torch(self, row, column):
        if self.torch_seconds > self.args.torch_budget or self.args.torch == "none":
            return False
        if column == "torch":
            return True
        wanted = self.args.max_autotune
        return wanted == "all" or row.name in wanted.split(",")

    def tune(self, row, calls, notes):
        """The best of TUNE_CONFIGS, as the column `tuned`."""
        candidates, configs = [], []
        for config in TUNE_CONFIGS:
            try:
                kernel, one = row.eider(config)
            except eider.EiderError:
                continue  # not valid for this row
            candidates.append(one)
            configs.append(kernel.info()["config"])
        times = row.time(candidates, self.args.tune_repeat)
        best = min(range(len(times)), key=times.__getitem__)
        calls["tuned"], notes["tuned_config"] = candidates[best], configs[best]

    def measure(self, name, dtype, log2_n):
        row = Row(self, name, dtype, log2_n)
        calls, notes = self.contenders(row)
        times = dict(zip(calls, row.time(list(calls.values()), self.args.repeat)))
        result = dict.fromkeys(COLUMNS, "")
        result.update(row=name, type=dtype, log2_n=log2_n, bytes=row.bytes, **notes)
        rates = {column: row.bytes / us / 1e3 for column, us in times.items()}
        result.update({column: f"{rate:.1f}" for column, rate in rates.items()})
        others = [r for column, r in rates.items() if column not in ("eider", "tuned")]
        result.update(eider_us=f"{times['eider']:.2f}", best_other=f"{max(others):.1f}",
                      ratio=f"{rates['eider'] / max(others):.3f}")
        self.results.append(result)

    def run(self):
        names = self.args.rows.split(",") if self.args.rows else list(self.rows)
        with open(self.out / "compare.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for dtype in self.args.types.split(","):
                for log2_n in sizes(self.args.sizes):
                    for name in names:
                        if time.monotonic() - self.started > self.args.seconds:
                            print("out of time", file=sys.stderr)
                            return
                        self.one(name, dtype, log2_n, writer, file)

    def one(self, name, dtype, log2_n, writer, file):
        try:
            self.measure(name, dtype, log2_n)
        except (RuntimeError, AssertionError) as error:
            print(f"{name} {dtype} 2^{log2_n}: {str(error)[:300]}", file=sys.stderr)
            return
        writer.writerow(self.results[-1])
        file.flush()
        print(line(self.results[-1]), flush=True)
        self.write_markdown()
        torch.cuda.empty_cache()
        torch._dynamo.reset()  # it stops compiling a function after a few sizes

    def write_markdown(self):
        info = self.library.describe(self.device)
        head = [f"{info.name.decode()}, driver {info.driver}, eider {self.library.version}, "
                f"torch {torch.__version__}, triton {triton.__version__}, math={self.math}; "
                f"{time.strftime('%Y-%m-%d')}", "", f"`{' '.join(sys.argv)}`", "",
                "GB/s; ratio: eider / the best of the others.", ""]
        columns = ["row", "type", "log2_n", "eider", "tuned", "memcpy", "torch", "torch_max",
                   "triton", "ratio", "error", "config"]
        columns = [c for c in columns if any(r[c] != "" for r in self.results)]
        table = ["| " + " | ".join(columns) + " |",
                 "|" + "|".join("---" if c in ("row", "type", "config") else "--:"
                                for c in columns) + "|"]
        table += ["| " + " | ".join(str(r[c]) for c in columns) + " |" for r in self.results]
        text = "\n".join(head + table) + "\n"
        (self.out / "compare.md").write_text(text, encoding="utf-8")


def line(result):
    rates = " ".join(f"{c} {result[c]}" for c in ("eider", "tuned", "memcpy", "torch",
                                                   "torch_max", "triton") if result[c])
    return (f"{result['row']:<16} {result['type']:<5} 2^{result['log2_n']:<3} {rates}  "
            f"ratio {result['ratio']}  error {result['error']}  {result['eider_us']} us  "
            f"{result['config']}")


def sizes(text):
    """[12, 13, 14] of "12-14", [20, 28] of "20,28"."""
    out = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--out", required=True, help="where compare.csv and compare.md go")
    add("--lib", help="libeider.so; default: $EIDER_LIB, else build/release")
    add("--rows", help="activations, by commas; default: all")
    add("--types", default="bf16", help="bf16, f16, f32, by commas")
    add("--sizes", default="28", help="log2 of the elements, such as 28 or 12-30")
    add("--math", default="auto", choices=eider.MATHS)
    add("--config", default="", help="an eider config, such as vec=8,block=256")
    add("--tune", action="store_true", help="also the best of a list of eider configs")
    add("--repeat", type=int, default=30, help="rounds")
    add("--tune-repeat", type=int, default=7, help="rounds when configs are compared")
    add("--torch", default="default", choices=["default", "none"])
    add("--max-autotune", default="", help="rows that also get mode=max-autotune, or all")
    add("--torch-budget", type=float, default=240, help="seconds of compiling torch may take")
    add("--no-triton", action="store_true")
    add("--seconds", type=float, default=460, help="start no row after this")
    return parser.parse_args()


if __name__ == "__main__":
    Bench(arguments()).run()
