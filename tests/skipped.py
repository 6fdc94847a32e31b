#!/usr/bin/env python3
"""Says loudly which tests were skipped, from the log that ctest leaves.

    skipped.py build/dev/Testing/Temporary/LastTest.log

A test that skips prints a line "SKIPPED (no GPU): detail" or "SKIPPED: why" first.  Where the
reason has the word GPU, the test is counted as one that needs a GPU.
"""
import re
import sys


def main():
    log = open(sys.argv[1], encoding="utf-8", errors="replace").read()
    total = gpu = 0
    lines = []
    for part in re.split(r"^\d+/\d+ Testing: ", log, flags=re.M)[1:]:
        name = part.split("\n", 1)[0]
        count = sum(int(n) for n in re.findall(r"^\[  SKIPPED \] (\d+) test\(s\)", part, re.M))
        if not count and re.search(r"^Test Skipped\.|^\*\*\*Skipped", part, re.M):
            count = 1
        if not count:
            continue
        reasons = [": ".join(filter(None, reason)) for reason in
                   re.findall(r"^SKIPPED(?: \((.*?)\))?: (.*)$", part, re.M)]
        reasons = reasons or ["no reason given"]
        no_gpu = sum(bool(re.search(r"\bGPUs?\b", reason)) for reason in reasons)
        total += count
        gpu += count if no_gpu == len(reasons) else no_gpu
        lines.append(f"*   {name}: {count} ({'; '.join(sorted(set(reasons)))})")
    if total:
        bar = "*" * 80
        print(f"\n{bar}\n* SKIPPED: {total} tests, {gpu} of them for want of a GPU", *lines, bar,
              sep="\n")
    else:
        print("\nNo test was skipped.")


if __name__ == "__main__":
    main()
