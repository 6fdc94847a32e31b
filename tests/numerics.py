#!/usr/bin/env python3
"""Compares the tables of errors in NUMERICS.md with what is measured.

    numerics.py NUMERICS.md             every result of every activation, and every program
                                        over rows, has its row
    numerics.py --measure NUMERICS.md   the rows of the CPU are what it measures now, as rounded

Runs the program `eider` from PATH.  Measuring takes minutes; `./dev sweep` does it.  What the
table of programs over rows says is compared by test_row_errors.c.
"""
import collections
import json
import re
import subprocess
import sys

MODES = ("approx", "fast", "exact")
COLUMNS = {"ulp": 0.01, "ulp_of_subnormals": 0.01, "absolute_below_1": 0.05}  # allowed distance:
# ulps have three digits in the tables, absolute errors two
TYPES = ("bf16", "f16", "f32")


def tables(path):
    """{place: {(type, function, result): {mode: [ulp, subnormal, absolute]}}}"""
    found, place, of_type = collections.defaultdict(dict), None, None
    for line in open(path, encoding="utf-8"):
        if line.startswith("## "):
            place = None
        elif line.startswith("### "):
            place = line.split()[1]
        elif head := re.match(f"({'|'.join(TYPES)}) on ", line):
            of_type = head[1]
        elif place and line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            row = {m: [float(cells[2 + 4 * i + k]) for k in (0, 2, 3)]
                   for i, m in enumerate(MODES)}
            found[place][of_type, cells[0].strip("`"), cells[1].strip("`")] = row
    return found


def programs(path):
    """The programs over rows that the table of their errors has."""
    text = open(path, encoding="utf-8").read()
    table = text.partition("\n## Programs over rows\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.M))


def eider(*arguments):
    done = subprocess.run(["eider", *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def wanted_rows():
    rows = set()
    for row in eider("list", "activations"):
        for result in row["signature"].split("=")[0].split(","):
            rows |= {(t, row["name"], result.strip()) for t in TYPES}
    return rows


def differences(table):
    """What is published and what is measured, where they are further apart than rounding."""
    for t in TYPES:
        for got in eider("check", "--all", "--device", "cpu", "--type", t):
            key = (t, got["program"], got["output"])
            published = table[key][got["math"]]
            for (name, allowed), want in zip(COLUMNS.items(), published):
                error = float(got[name]["error"])
                if abs(error - want) > allowed * max(abs(want), 1e-30):
                    yield f"{key} {got['math']}: {name} is {error:.3g}, published {want:.3g}"
            if got["mismatches"]:
                yield f"{key} {got['math']}: {got['mismatches']} mismatches"


def main():
    measure, path = "--measure" in sys.argv, sys.argv[-1]
    found, problems = tables(path), []
    for place in ("CPU", "GPU"):
        rows = set(found[place])
        if place == "GPU" and not rows:
            print("no table of a GPU")
            continue
        problems += [f"{place}: no row for {row}" for row in sorted(wanted_rows() - rows)]
        problems += [f"{place}: nothing is called {row}" for row in sorted(rows - wanted_rows())]
    named = {row["name"] for row in eider("list", "kernels") if row["signature"] == "program"}
    problems += [f"no row for the program {name}" for name in sorted(named - programs(path))]
    problems += [f"no program is called {name}" for name in sorted(programs(path) - named)]
    if measure and not problems:
        problems += differences(found["CPU"])
    print(*problems, sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
