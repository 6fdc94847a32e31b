#!/usr/bin/env python3
"""Which configs of the map template stream fastest: what its default rule is made from.

    python3 bench/configs.py --out DIRECTORY [--rows relu,swiglu] [--types bf16,f32] [--sizes 28]

Two passes per row, type and size: geometry (vec, unroll, block) with plain accesses, then the
cache policies on the two best geometries.  Configs take turns in rounds; the median counts.
Writes configs.csv line by line and prints the best, the default and the copy rate of each.
Needs a GPU and torch.
"""
import argparse
import csv
import itertools
import pathlib
import re
import statistics
import time

import torch

import eider

TORCH_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
GEOMETRY = [f"vec={v},unroll={u},block={b}" for v, u, b in
            itertools.product((2, 4, 8, 16), (1, 2, 4), (128, 256, 512, 1024))]
POLICIES = [f"load={l},store={s}" for l, s in
            itertools.product(("ca", "cg", "cs", "noalloc", "first"), ("wb", "cs", "first"))]


class Row:
    """An activation with tensors of one type and size."""

    def __init__(self, library, device, signature, dtype, log2_n):
        self.library, self.device = library, device
        results, _, call = signature.partition(" = ")
        name, params = re.fullmatch(r"(\w+)\((.*)\)", call).groups()
        names = [p.strip() for p in params.split(",") if "=" not in p]
        self.text = f"{results} = {name}({', '.join(names)})"
        n = 1 << log2_n
        kind = TORCH_TYPES[dtype]
        count = len(names) + results.count(",") + 1
        self.buffers = [torch.randn(n, device="cuda").to(kind) for _ in range(count)]
        self.args = eider.tensors([(b.data_ptr(), dtype, (n,)) for b in self.buffers])
        self.bytes = n * kind.itemsize * count

    def kernel(self, config):
        try:
            return eider.Kernel(self.library, self.device, self.text, self.args, config=config)
        except eider.EiderError:
            return None

    def measure(self, configs, rounds, repeat=3):
        """{config: median GB/s}, the configs taking turns."""
        kernels = {c: k for c in configs if (k := self.kernel(c))}
        flush = self.bytes < 1 << 29
        times = {c: [] for c in kernels}
        for k in kernels.values():
            k.time(self.args, 2, False)
        for _ in range(rounds):
            for c, k in kernels.items():
                times[c] += k.time(self.args, repeat, flush)
        rates = {c: self.bytes / statistics.median(t) for c, t in times.items()}
        for k in kernels.values():
            k.release()
        return rates

    def copy_rate(self, rounds):
        """GB/s of a device-to-device copy of half as many bytes."""
        source, target = (torch.empty(self.bytes // 2, dtype=torch.uint8, device="cuda")
                          for _ in range(2))
        times = []
        for _ in range(rounds * 3):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            target.copy_(source)
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) * 1e6)
        return self.bytes / statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--rows", default="relu,swiglu,drelu,dswiglu")
    parser.add_argument("--types", default="bf16,f32")
    parser.add_argument("--sizes", default="28,24")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    begin = time.monotonic()
    library = eider.Library()
    device = library.device("cuda:0")
    table = library.activations()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "configs.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "type", "log2_n", "config", "gb_s"])
        for name, dtype, size in itertools.product(args.rows.split(","), args.types.split(","),
                                                   map(int, args.sizes.split(","))):
            if time.monotonic() - begin > args.seconds:
                break
            row = Row(library, device, table[name][0], dtype, size)
            rates = row.measure([""] + GEOMETRY, args.rounds)
            best = sorted((c for c in rates if c), key=rates.get, reverse=True)[:2]
            rates.update(row.measure([f"{g},{p}" for g in best for p in POLICIES], args.rounds))
            writer.writerows([name, dtype, size, c, f"{r:.1f}"] for c, r in rates.items())
            file.flush()
            top = sorted(rates, key=rates.get, reverse=True)[:6]
            print(f"{name} {dtype} 2^{size}: copy {row.copy_rate(args.rounds):.0f}, "
                  f"default {rates['']:.0f}", *(f"\n    {rates[c]:.0f} {c}" for c in top),
                  flush=True)
            del row
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
