#!/usr/bin/env python3
"""Programs over rows side by side: eider, cuMemcpyDtoD, torch.compile and, if it is there, Liger.

    python3 bench/rows.py --out DIRECTORY --seconds 500
    python3 bench/rows.py --out DIRECTORY --programs softmax --types bf16 --tune
    python3 bench/rows.py --out DIRECTORY --shapes 32768x4096,8192x262144 --config row=256,keep=4

Needs a GPU and torch.  Rates are GB/s of the bytes a program must move: every input once, every
output once; cuMemcpyDtoD copies half of them.  The contenders take turns and write into tensors
that exist; a CUDA graph launches each over several sets of tensors where one set fits the L2 cache,
so that every launch finds it cold; medians of --repeat rounds.

The error is the largest difference to the same formula in f64, over the largest magnitude of the
result, on up to 64 rows.  Writes rows.csv line by line, so a run that is cut keeps what it has, and
rows.md.
"""
import argparse
import csv
import ctypes
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

import eider
from compare import SMALL_BYTES, sets_us

TORCH_TYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64}
SHAPES = ("32768x256,32768x1024,32768x4096,32768x8192,16384x16384,16384x32768,8192x65536,"
          "16384x131072,8192x262144")
IGNORE, EPS = -100, 1e-6
COLUMNS = ["program", "type", "rows", "length", "bytes", "eider", "tuned", "memcpy", "torch",
           "liger", "of_copy", "ratio", "error", "eider_us", "registers", "compile_ms", "config",
           "tuned_config"]


# ---- The formulas, for torch.compile and, in f64, as the reference --------------------------

def wide(t):
    return t.double() if t.dtype == torch.float64 else t.float()


def rmsnorm(x, weight):
    v = wide(x)
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * wide(weight)).to(x.dtype)


def rmsnorm_backward(x, weight, rstd, dy):
    g, h = wide(dy) * wide(weight), wide(x) * rstd
    return (rstd * (g - h * (g * h).mean(-1, keepdim=True))).to(x.dtype)


def layernorm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def layernorm_backward(x, weight, mean, rstd, dy):
    g, h = wide(dy) * wide(weight), (wide(x) - mean) * rstd
    inner = g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True)
    return (rstd * inner).to(x.dtype)


def softmax(x):
    return torch.softmax(x, -1)


def softmax_backward(y, dy):
    a, b = wide(y), wide(dy)
    return (a * (b - (a * b).sum(-1, keepdim=True))).to(y.dtype)


def cross_entropy(logits, target):
    lse = torch.logsumexp(wide(logits), -1, keepdim=True)
    picked = wide(logits).gather(-1, target.clamp(min=0))
    return torch.where(target == IGNORE, 0, lse - picked), lse


def cross_entropy_backward(logits, target, lse, dloss):
    hit = torch.arange(logits.shape[-1], device=logits.device) == target
    grad = dloss * (torch.exp(wide(logits) - lse) - hit.to(lse.dtype))
    return torch.where(target == IGNORE, 0, grad).to(logits.dtype)


def cross_entropy_train(logits, target, dloss):
    loss, lse = cross_entropy(logits, target)
    return loss, lse, cross_entropy_backward(logits, target, lse, dloss)


# Operands as eider orders them: inputs "full", "column", "row" (f32 statistics), "target"; scalars
# as (type, value); then outputs.  Formulas take the inputs in the same order.
PROGRAMS = {
    "rmsnorm": (rmsnorm, ["full", "column", ("f32", EPS)], ["full"]),
    "layernorm": (layernorm, ["full", "column", "column", ("f32", EPS)], ["full"]),
    "softmax": (softmax, ["full"], ["full"]),
    "cross_entropy": (cross_entropy, ["full", "target", ("i64", IGNORE)], ["row", "row"]),
    "rmsnorm_backward": (rmsnorm_backward, ["full", "column", "row", "full"], ["full"]),
    "layernorm_backward": (layernorm_backward, ["full", "column", "row", "row", "full"], ["full"]),
    "softmax_backward": (softmax_backward, ["full", "full"], ["full"]),
    "cross_entropy_backward": (cross_entropy_backward,
                               ["full", "target", "row", "row", ("i64", IGNORE)], ["full"]),
    "cross_entropy_train": (cross_entropy_train,
                            ["full", "target", "row", ("i64", IGNORE), ("f32", 0), ("f32", 0)],
                            ["row", "row", "full"]),
}


def liger(name):
    """Liger's forward kernel of a program, or None."""
    try:
        from liger_kernel.ops import rms_norm, layer_norm
    except ImportError:
        return None
    table = {"rmsnorm": lambda x, w: rms_norm.rms_norm_forward(x, w, EPS, 0.0, "llama", None)[0],
             "layernorm": lambda x, w, b: layer_norm.layer_norm_forward(x, w, b, EPS)[0]}
    return table.get(name)


class Cell:
    """One program at one type and shape, with the tensors of every contender."""

    def __init__(self, bench, name, dtype, rows, cols):
        self.bench, self.name, self.dtype = bench, name, dtype
        self.rows, self.cols = rows, cols
        self.formula, self.inputs, self.outputs = PROGRAMS[name]
        width = torch.finfo(TORCH_TYPES[dtype]).bits // 8
        full = rows * cols * width
        self.bytes = full * (self.inputs.count("full") + self.outputs.count("full"))
        self.small = self.bytes < SMALL_BYTES
        n_sets = min(32, -(-3 * bench.l2_bytes // self.bytes)) if self.small else 1
        self.scalars = [(kind, self.scalar(*kind)) for kind in self.inputs
                        if isinstance(kind, tuple)]
        self.sets = [self.tensors() for _ in range(n_sets)]

    @staticmethod
    def scalar(dtype, value):
        return (ctypes.c_float if dtype == "f32" else ctypes.c_int64)(value)

    def tensor(self, kind, is_output):
        data = TORCH_TYPES[self.dtype]
        shape = {"full": (self.rows, self.cols), "column": (self.cols,)}.get(kind, (self.rows, 1))
        if kind == "target":
            return torch.randint(0, self.cols, shape, device="cuda")
        kind_type = data if kind in ("full", "column") else torch.float32
        if is_output:
            return torch.empty(shape, dtype=kind_type, device="cuda")
        return torch.randn(shape, dtype=kind_type, device="cuda")

    def tensors(self):
        inputs = [self.tensor(k, False) for k in self.inputs if not isinstance(k, tuple)]
        names = [k for k in self.inputs if not isinstance(k, tuple)]
        if "row" in names:  # statistics of this x, so that values are what they are in use
            self.fill_statistics(inputs, names)
        return inputs, [self.tensor(k, True) for k in self.outputs]

    def fill_statistics(self, inputs, names):
        rows = [t for t, k in zip(inputs, names) if k == "row"]
        for first in range(0, self.rows, 1024):
            part = slice(first, first + 1024)
            x = inputs[0][part].float()
            if self.name == "rmsnorm_backward":
                rows[0][part] = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
            if self.name == "layernorm_backward":
                rows[0][part] = x.mean(-1, keepdim=True)
                rows[1][part] = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + EPS)
            if self.name == "cross_entropy_backward":
                rows[0][part] = torch.logsumexp(x, -1, keepdim=True)
        if self.name.startswith("cross_entropy"):
            rows[-1].fill_(1 / self.rows)

    # Each contender gives one function per set of tensors.

    def operands(self, inputs, outputs):
        triples, given, scalars = [], iter(inputs), iter(self.scalars)
        for kind in self.inputs:
            if isinstance(kind, tuple):
                triples.append((ctypes.addressof(next(scalars)[1]), kind[0], ()))
                continue
            tensor = next(given)
            triples.append((tensor.data_ptr(), self.type_of(tensor), tuple(tensor.shape)))
        triples += [(t.data_ptr(), self.type_of(t), tuple(t.shape)) for t in outputs]
        return eider.tensors(triples)

    @staticmethod
    def type_of(tensor):
        return {v: k for k, v in TORCH_TYPES.items()}[tensor.dtype]

    def eider(self, config):
        args = [self.operands(*s) for s in self.sets]
        start = time.monotonic()
        kernel = eider.Kernel(self.bench.library, self.bench.device, self.name, args[0],
                              self.bench.args.math, config)
        self.compile_ms = (time.monotonic() - start) * 1e3

        def call(a):
            kernel.launch(a, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return kernel, [lambda a=a: call(a) for a in args]

    def memcpy(self):
        copy = self.bench.driver.cuMemcpyDtoDAsync_v2
        halves = [[torch.empty(self.bytes // 2, dtype=torch.uint8, device="cuda")
                   for _ in range(2)] for _ in self.sets]

        def call(to, start):
            code = copy(ctypes.c_uint64(to.data_ptr()), ctypes.c_uint64(start.data_ptr()),
                        ctypes.c_size_t(self.bytes // 2),
                        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            assert code == 0, f"cuMemcpyDtoDAsync: {code}"
        return [lambda h=h: call(*h) for h in halves]

    def torch(self):
        function = torch.compile(self.formula, dynamic=False, fullgraph=True)
        return [lambda i=i: function(*i) for i, _ in self.sets]

    def time(self, contenders, repeat):
        return sets_us(contenders, len(self.sets), self.small, repeat)

    def error(self, calls):
        calls[0]()
        torch.cuda.synchronize()
        inputs, outputs = self.sets[0]
        rows = min(self.rows, 64)
        cut = [t[:rows] if t.shape[0] == self.rows and t.dim() == 2 else t for t in inputs]
        want = self.formula(*(t if t.dtype == torch.int64 else t.double() for t in cut))
        want = want if isinstance(want, tuple) else (want,)
        worst = 0.0
        for got, w in zip(outputs, want):
            difference = (got[:rows].double() - w).abs().max() / w.abs().max()
            worst = max(worst, difference.item())
        return worst


def candidates(cell):
    """Configs worth trying: accesses of 8 and 16 bytes, 1 to 8 vectors of a row per thread."""
    width = torch.finfo(TORCH_TYPES[cell.dtype]).bits // 8
    n_full = cell.inputs.count("full")
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


class Bench:
    """What all cells share."""

    def __init__(self, args):
        self.args = args
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        torch.cuda.init()
        torch.empty(1, device="cuda")
        self.library = eider.Library(args.lib)
        self.device = self.library.device("cuda:0")
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.results = []
        self.started = time.monotonic()

    def contenders(self, cell):
        calls, notes = {}, {}
        kernel, calls["eider"] = cell.eider(self.args.config)
        info = kernel.info()
        notes.update(config=info["config"], registers=info["registers"],
                     compile_ms=f"{cell.compile_ms:.0f}", error=f"{cell.error(calls['eider']):.1e}")
        calls["memcpy"] = cell.memcpy()
        others = {"torch": cell.torch} if self.args.torch == "default" else {}
        function = liger(cell.name)
        if function:
            others["liger"] = lambda: [lambda i=i: function(*i) for i, _ in cell.sets]
        for column, make in others.items():
            try:
                calls[column] = make()
                calls[column][0]()
                torch.cuda.synchronize()
            except Exception as error:  # a contender that fails is a gap in the table
                calls.pop(column, None)
                print(f"{cell.name}: {column}: {str(error)[:300]}", file=sys.stderr)
        if self.args.tune:
            self.tune(cell, calls, notes)
        return calls, notes

    def tune(self, cell, calls, notes):
        tried, configs = [calls["eider"]], [notes["config"]]
        for config in candidates(cell):
            try:
                kernel, one = cell.eider(config)
            except eider.EiderError:
                continue  # not valid for this cell
            tried.append(one)
            configs.append(kernel.info()["config"])
        times = cell.time(tried, self.args.tune_repeat)
        best = min(range(len(times)), key=times.__getitem__)
        calls["tuned"], notes["tuned_config"] = tried[best], configs[best]

    def measure(self, name, dtype, rows, cols):
        cell = Cell(self, name, dtype, rows, cols)
        calls, notes = self.contenders(cell)
        times = dict(zip(calls, cell.time(list(calls.values()), self.args.repeat)))
        result = dict.fromkeys(COLUMNS, "")
        result.update(program=name, type=dtype, rows=rows, length=cols, bytes=cell.bytes, **notes)
        rates = {column: cell.bytes / us / 1e3 for column, us in times.items()}
        result.update({column: f"{rate:.0f}" for column, rate in rates.items()})
        others = [r for column, r in rates.items() if column in ("torch", "liger")]
        result.update(eider_us=f"{times['eider']:.1f}",
                      of_copy=f"{rates['eider'] / rates['memcpy']:.3f}",
                      ratio=f"{rates['eider'] / max(others):.2f}" if others else "")
        self.results.append(result)

    def run(self):
        shapes = [tuple(map(int, s.split("x"))) for s in self.args.shapes.split(",")]
        names = self.args.programs.split(",") if self.args.programs else list(PROGRAMS)
        with open(self.out / "rows.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for dtype in self.args.types.split(","):
                for rows, cols in shapes:
                    for name in names:
                        if time.monotonic() - self.started > self.args.seconds:
                            print("out of time", file=sys.stderr)
                            return
                        self.one(name, dtype, rows, cols, writer, file)

    def one(self, name, dtype, rows, cols, writer, file):
        try:
            self.measure(name, dtype, rows, cols)
        except (RuntimeError, AssertionError) as error:
            print(f"{name} {dtype} {rows}x{cols}: {str(error)[:300]}", file=sys.stderr)
            return
        writer.writerow(self.results[-1])
        file.flush()
        print(line(self.results[-1]), flush=True)
        self.write_markdown()
        torch.cuda.empty_cache()
        torch._dynamo.reset()

    def write_markdown(self):
        info = self.library.describe(self.device)
        head = [f"{info.name.decode()}, driver {info.driver}, eider {self.library.version}, "
                f"torch {torch.__version__}, math={self.args.math}; {time.strftime('%Y-%m-%d')}",
                "", f"`{' '.join(sys.argv)}`", "",
                "GB/s; of_copy: eider / memcpy; ratio: eider / the best of the others.", ""]
        columns = [c for c in COLUMNS if any(r[c] != "" for r in self.results) and c != "bytes"]
        table = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        table += ["| " + " | ".join(str(r[c]) for c in columns) + " |" for r in self.results]
        (self.out / "rows.md").write_text("\n".join(head + table) + "\n", encoding="utf-8")


def line(result):
    rates = " ".join(f"{c} {result[c]}" for c in ("eider", "tuned", "memcpy", "torch", "liger")
                     if result[c])
    return (f"{result['program']:<22} {result['type']:<4} {result['rows']}x{result['length']:<7} "
            f"{rates}  of copy {result['of_copy']} ratio {result['ratio']}  error "
            f"{result['error']}  {result['eider_us']} us  {result['config']}  "
            f"{result['tuned_config']}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--out", required=True, help="where rows.csv and rows.md go")
    add("--lib", help="libeider.so; default: $EIDER_LIB, else build/release")
    add("--programs", help="by commas; default: all")
    add("--types", default="bf16,f32")
    add("--shapes", default=SHAPES, help="ROWSxLENGTH, by commas")
    add("--math", default="auto", choices=eider.MATHS)
    add("--config", default="", help="an eider config, such as row=256,keep=4")
    add("--tune", action="store_true", help="also the best of a list of eider configs")
    add("--repeat", type=int, default=20, help="rounds")
    add("--tune-repeat", type=int, default=5, help="rounds when configs are compared")
    add("--torch", default="default", choices=["default", "none"])
    add("--seconds", type=float, default=460, help="start no cell after this")
    return parser.parse_args()


if __name__ == "__main__":
    Bench(arguments()).run()
