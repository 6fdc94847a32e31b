#!/usr/bin/env python3
"""The style rules that a compiler does not check.  Run by the test `tidy`, or by ./dev tidy.

Prints FILE:LINE: what is wrong, and ends with status 1 when anything is.  Each rule is a function
that takes a file and yields (line number, message); add one by writing it and naming it in RULES.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70

# Functions that may be longer, because cutting them would hide their shape.
LONG_FUNCTIONS = set()

# The layers: where they lie, and whose headers they may include besides their own.
LAYERS = {
    "src/base": [],
    "src/ir": ["src/base"],
    "kernels_ir": ["src/ir", "src/base"],
    "src/codegen": ["src/base"],
    "src/runtime": ["src/codegen", "kernels_ir", "src/ir", "src/base"],
    "src/tuner": ["src/runtime", "src/codegen", "kernels_ir", "src/ir", "src/base"],
    "tools": [],
}
# Who may include LLVM's headers, and which.
LLVM_HEADERS = {
    "src/ir": r"llvm-c/",
    "kernels_ir": r"llvm-c/",
    "src/codegen": r"llvm-c/",
    "src/runtime": r"llvm-c/Types\.h",
    "tests": r"llvm-c/",
    "bench": r"llvm-c/",
}
# Who may call the CUDA driver by name.
DRIVER_FOLDERS = ("src/runtime", "tests", "bench", "examples")

# A library neither prints nor ends its host, and does not use calls that cannot be bounded.
BANNED = ("strcpy strcat sprintf vsprintf gets atoi atol atof exit _exit abort printf fprintf puts "
          "putchar perror system popen").split()
BANNED_EXCEPT = {
    # The compile worker is a process of its own: it may end.
    "src/codegen/worker.c": {"_exit"},
}

# Traces of one developer's machine or tracker.  Spelled so that this file does not match itself.
LOCAL_TRACES = re.compile(
    r"/wor[k]/|/hom[e]/|/roo[t]/|/tm[p]/bash_jobs|wor[k]place|\bis[s]ues? #?\d|\.librar[y]/|"
    r"\bworktre[e]\b|this ses[s]ion|this machin[e] has", re.I)
LEFTOVERS = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")

TEXT_SUFFIXES = {".c", ".h", ".def", ".py", ".md", ".txt", ".cmake", ".json", ".sh", ".supp",
                 ".map", ".in", ""}


class File:
    """One file of the tree: its text, and the same text with comments and strings blanked."""

    def __init__(self, path):
        self.path = path
        self.name = path.relative_to(ROOT).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.is_c = path.suffix in (".c", ".h", ".def")
        self.code = blank(self.text).splitlines() if self.is_c else self.lines
        self.folder = next((f for f in [*LAYERS, "tests", "bench", "examples", "include"]
                            if self.name.startswith(f + "/")), "")


def blank(text):
    """C text with the inside of comments, strings and characters replaced by spaces."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def columns(file):
    for n, line in enumerate(file.lines, 1):
        if file.path.suffix == ".md" and re.match(r"\||<!-- ", line):
            continue  # a row of a table cannot be broken
        if len(line) > COLUMNS_MAX:
            yield n, f"{len(line)} columns, {COLUMNS_MAX} are allowed"


def white_space(file):
    for n, line in enumerate(file.lines, 1):
        if file.is_c and "\t" in line:
            yield n, "a tab"
        if line != line.rstrip():
            yield n, "white space at the end"
    if file.text and not file.text.endswith("\n"):
        yield len(file.lines), "no newline at the end"


def header_comment(file):
    if file.is_c and not file.text.startswith("/* "):
        yield 1, "a file starts with a comment: what it is, its invariant, what it is not"
    elif file.is_c and not file.text.startswith(f"/* {file.path.name} -- "):
        yield 1, f"the header comment starts with '/* {file.path.name} -- '"


def leftovers(file):
    for n, line in enumerate(file.lines, 1):
        if LEFTOVERS.search(line):
            yield n, "an open end: do it or file it"


def local_traces(file):
    for n, line in enumerate(file.lines, 1):
        found = LOCAL_TRACES.search(line)
        if found:
            yield n, f"means nothing to a reader elsewhere: {found.group()!r}"


def function_length(file):
    """A function runs from its name in column 0 to the brace that closes it in column 0."""
    if not file.is_c:
        return
    name, start = None, 0
    for n, line in enumerate(file.code, 1):
        head = re.match(r"[A-Za-z_].*?(\w+)\s*\(", line)
        if head and not line.startswith(("#", "typedef")) and not line.rstrip().endswith(";"):
            name, start = head.group(1), n
        elif line.startswith("}"):
            length = n - start + 1
            if name and length > FUNCTION_LINES_MAX and name not in LONG_FUNCTIONS:
                yield start, f"{name} has {length} lines, {FUNCTION_LINES_MAX} are allowed"
            name = None


def banned_calls(file):
    if not (file.is_c and file.name.startswith(("src/", "kernels_ir/"))):
        return
    allowed = BANNED_EXCEPT.get(file.name, set())
    for n, line in enumerate(file.code, 1):
        for call in re.findall(r"(?<![\w.>])(\w+)\s*\(", line):
            if call in BANNED and call not in allowed:
                yield n, f"{call} is banned in the library"


def includes(file):
    """Headers come from the own layer and those below it; LLVM's only where IR is handled."""
    if not (file.is_c and file.folder in LAYERS):
        return
    allowed = [file.folder, *LAYERS[file.folder]]
    for n, line in enumerate(file.lines, 1):
        found = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
        if not found:
            continue
        header = found.group(1)
        if header.startswith(("llvm/", "llvm-c/")):
            pattern = LLVM_HEADERS.get(file.folder)
            if not pattern or not re.match(pattern, header):
                yield n, f"{file.folder} may not include {header}"
        elif header.startswith("cuda") and "/" not in header and header != "cuda_api.h" \
                and header != "cuda_api.def":
            yield n, f"{header}: building needs no CUDA toolkit"
        elif line.lstrip().startswith("#include \"") and not header.startswith("eider/"):
            if "/" in header:
                yield n, f"{header}: name the file alone, file names are unique"
            elif not any((ROOT / folder / header).exists() for folder in allowed):
                yield n, f"{header} is not in {', '.join(allowed)}"


def driver_calls(file):
    if not file.is_c or file.name.startswith(DRIVER_FOLDERS):
        return
    for n, line in enumerate(file.code, 1):
        found = re.search(r"\bcu[A-Z]\w+\s*\(", line)
        if found:
            yield n, f"only the runtime calls the driver: {found.group()}"


RULES = [columns, white_space, header_comment, leftovers, local_traces, function_length,
         banned_calls, includes, driver_calls]


def unique_names(files):
    """Across folders a name says which file is meant, so '#include "graph.h"' is unambiguous."""
    seen = {}
    for file in files:
        if file.is_c and file.folder not in ("bench", "examples"):
            other = seen.setdefault(file.path.name, file)
            if other is not file:
                yield f"{file.name}:1: another file has this name: {other.name}"


def stale_exceptions(files):
    text = "\n".join(file.text for file in files if file.is_c)
    for name in sorted(LONG_FUNCTIONS):
        if not re.search(rf"\b{name}\b", text):
            yield f"tests/tidy.py:1: LONG_FUNCTIONS names {name}, which does not exist"


def tree():
    skip = {".git", "build", "dist", ".venv", ".cache", "__pycache__", "goldens", "corpus"}
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.is_symlink() or not path.is_file() or skip.intersection(parts):
            continue
        if path.suffix in TEXT_SUFFIXES and path.name not in (".git",):
            yield File(path)


def main():
    files = list(tree())
    problems = []
    for file in files:
        for rule in RULES:
            problems += [f"{file.name}:{n}: {message}" for n, message in rule(file)]
    problems += unique_names(files)
    problems += stale_exceptions(files)
    print(*problems, sep="\n")
    print(f"tidy: {len(files)} files, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
