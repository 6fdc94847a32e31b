#!/usr/bin/env python3
"""Tables of what bench/rows.py measured.

    python3 bench/row_report.py DIRECTORY

Reads rows.csv and gaps.csv there, and prints, per type, a table of programs and shapes, then how
many cells reach the best of the others and the speed of a copy, the cells that are furthest from
that, errors and what is missing.  Needs nothing but Python.
"""
import csv
import pathlib
import sys

KEY = ["program", "type", "rows", "length"]
CONTENDERS = ["eider", "tuned", "memcpy", "torch", "liger", "quack"]
PEERS = {"torch": "T", "liger": "L", "quack": "Q"}
ERRORS = [f"error_{c}" for c in CONTENDERS if c != "memcpy"]
COLUMNS = KEY + ["bytes"] + CONTENDERS + ERRORS + ["registers", "compile_ms", "tune_s", "build_s",
                                                   "time_s", "config", "tuned_config"]
GAP_COLUMNS = KEY + ["contender", "reason"]
N_WORST = 20


def read(path):
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(path, columns, row):
    """One more line, at once on disk."""
    is_new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        if is_new:
            writer.writeheader()
        writer.writerow({k: " ".join(str(v).split())[:300] for k, v in row.items()})


# ---- One cell -----------------------------------------------------------------------------------

def rate(row, contender):
    return float(row.get(contender) or 0)


def best(row):
    """The better of what eider reaches tuned and untuned."""
    return max(rate(row, "tuned"), rate(row, "eider"))


def best_peer(row):
    return max((rate(row, p), p) for p in PEERS)


def over_peer(row, mine):
    other = best_peer(row)[0]
    return mine / other if other else None


def of_copy(row, mine):
    copy = rate(row, "memcpy")
    return mine / copy if copy else None


def line(row):
    """A cell while it is measured."""
    peer = over_peer(row, best(row))
    rates = " ".join(f"{c} {rate(row, c):.0f}" for c in CONTENDERS if row.get(c))
    return (f"{row['program']:<22} {row['type']:<4} {row['rows']}x{row['length']:<7} {rates}  "
            f"of copy {of_copy(row, best(row)) or 0:.3f} over peer {peer or 0:.2f}  error "
            f"{row.get('error_eider', '')}  {row.get('config', '')} | "
            f"{row.get('tuned_config', '')}  {row.get('build_s', '')} + {row.get('time_s', '')} s")


def cell_text(row):
    """`untuned / tuned (of copy) / best peer and which`."""
    if row is None:
        return ""
    parts = [f"{rate(row, 'eider'):.0f}"]
    if row.get("tuned"):
        parts.append(f"{rate(row, 'tuned'):.0f}")
    copy = of_copy(row, best(row))
    parts[-1] += f" ({copy:.2f})" if copy else ""
    other, name = best_peer(row)
    if other:
        text = f"{other:.0f} {PEERS[name]}"
        parts.append(f"**{text}**" if other > best(row) else text)
    return " / ".join(parts)


# ---- Tables -------------------------------------------------------------------------------------

def ordered(values):
    return list(dict.fromkeys(values))


def table(rows, dtype):
    mine = {(r["program"], r["rows"], r["length"]): r for r in rows if r["type"] == dtype}
    shapes = sorted({k[1:] for k in mine}, key=lambda s: (int(s[1]), int(s[0])))
    yield "| program | " + " | ".join(f"{r} x {n}" for r, n in shapes) + " |"
    yield "|---|" + "--:|" * len(shapes)
    for program in ordered(k[0] for k in mine):
        cells = (cell_text(mine.get((program,) + s)) for s in shapes)
        yield f"| {program} | " + " | ".join(cells) + " |"


def count(rows, function, least):
    """`n of m` of the rows for which there is a value."""
    values = [v for v in map(function, rows) if v is not None]
    return f"{sum(v >= least for v in values)} of {len(values)}"


def summary(rows):
    long = [r for r in rows if int(r["length"]) >= 1024]
    tuned = [r for r in rows if r.get("tuned")]

    def untuned(f):
        return lambda r: f(r, rate(r, "eider"))

    def tuned_rate(f):
        return lambda r: f(r, rate(r, "tuned"))
    yield "| | untuned | tuned |"
    yield "|---|--:|--:|"
    for text, some, function, least in (
            ("at least the best of the others", lambda r: r, over_peer, 1.0),
            ("at least 0.98 of the best of the others", lambda r: r, over_peer, 0.98),
            ("at least 0.95 of a copy, length 1024 and more", lambda r: r in long, of_copy, 0.95),
            ("at least 0.90 of a copy, length 1024 and more", lambda r: r in long, of_copy, 0.90)):
        yield (f"| {text} | {count(filter(some, rows), untuned(function), least)} | "
               f"{count(filter(some, tuned), tuned_rate(function), least)} |")


def worst(rows, title, function, least):
    """The cells below `least`, the lowest first."""
    low = sorted(((function(r), r) for r in rows if (function(r) or least) < least),
                 key=lambda item: item[0])
    if not low:
        return
    yield f"\n{title}: {len(low)}\n"
    yield "| ratio | program | type | rows x length | eider | tuned | copy | best other | config |"
    yield "|--:|---|---|---|--:|--:|--:|--:|---|"
    for ratio, r in low[:N_WORST]:
        other, name = best_peer(r)
        tuned = f"{rate(r, 'tuned'):.0f}" if r.get("tuned") else ""
        yield (f"| {ratio:.3f} | {r['program']} | {r['type']} | {r['rows']} x {r['length']} | "
               f"{rate(r, 'eider'):.0f} | {tuned} | {rate(r, 'memcpy'):.0f} | "
               f"{other:.0f} {PEERS[name] if other else ''} | "
               f"{r.get('tuned_config') or r.get('config')} |")


def largest(rows, column):
    values = [float(r[column]) for r in rows if r.get(column)]
    return f"{max(values, key=lambda v: (v != v, v)):.1e}" if values else ""


def errors(rows):
    yield "| program | type | " + " | ".join(c[6:] for c in ERRORS) + " |"
    yield "|---|---|" + "--:|" * len(ERRORS)
    for program, dtype in ordered((r["program"], r["type"]) for r in rows):
        some = [r for r in rows if (r["program"], r["type"]) == (program, dtype)]
        yield f"| {program} | {dtype} | " + " | ".join(largest(some, c) for c in ERRORS) + " |"


def gaps(all_gaps):
    """Reasons, with the cells of each."""
    by_reason = {}
    for g in all_gaps:
        cell = f"{g['program']} {g['type']} {g['rows']}x{g['length']}"
        by_reason.setdefault((g["contender"], g["reason"]), []).append(cell)
    for (contender, reason), cells in by_reason.items():
        shown = ", ".join(ordered(cells)[:12]) + (", ..." if len(cells) > 12 else "")
        yield f"- {contender}: {reason}: {len(set(cells))} cells: {shown}"


def notes(rows):
    """What the others' kernels do more or less; known where torch is not needed to ask."""
    try:
        from row_peers import NOTES
    except ImportError:
        return
    for (peer, program), text in NOTES.items():
        if any(r["program"] == program and r.get(peer) for r in rows):
            yield f"- {peer}, {program}: {text}"


def report(folder):
    rows, missing = read(folder / "rows.csv"), read(folder / "gaps.csv")
    for name in ("about.txt", "command.txt"):
        if (folder / name).exists():
            yield (folder / name).read_text(encoding="utf-8").strip()
            yield ""
    yield ("GB/s: eider untuned / tuned (the better one over cuMemcpyDtoD of as many bytes) / the "
           "best of torch.compile (T), Liger (L), quack (Q), bold where it is ahead.")
    for dtype in ordered(r["type"] for r in rows):
        yield f"\n{dtype}:\n"
        yield from table(rows, dtype)
    yield ""
    yield from summary(rows)
    yield from worst(rows, "Behind the best of the others", lambda r: over_peer(r, best(r)), 1.0)
    long = [r for r in rows if int(r["length"]) >= 1024]
    yield from worst([r for r in long if r.get("tuned")],
                     "Tuned, below 0.95 of a copy, length 1024 and more",
                     lambda r: of_copy(r, rate(r, "tuned")), 0.95)
    yield from worst(long, "Untuned, below 0.90 of a copy, length 1024 and more",
                     lambda r: of_copy(r, rate(r, "eider")), 0.90)
    yield "\nLargest errors (row_programs.py says relative to what):\n"
    yield from errors(rows)
    for title, lines in (("What the others' kernels do more or less", list(notes(rows))),
                         ("Not measured", list(gaps(missing)))):
        if lines:
            yield f"\n{title}:\n"
            yield from lines


def write(folder):
    """rows.md, and the same on standard output."""
    text = "\n".join(report(folder)) + "\n"
    (folder / "rows.md").write_text(text, encoding="utf-8")
    print(text, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("row_report.py: give the folder of rows.csv")
    write(pathlib.Path(sys.argv[1]))
