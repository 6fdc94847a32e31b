#!/usr/bin/env python3
"""Compares what a shared library exports with what the public header declares.

    symbols.py HEADER LIBRARY...

Exactly the functions declared with EIDER_API are exported, and nothing of LLVM's.
"""
import re
import subprocess
import sys


def declared(header):
    text = open(header, encoding="utf-8").read()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^\s*#.*(\\\n.*)*$", "", text, flags=re.M)
    return set(re.findall(r"\bEIDER_API\b[^;({]*?\b(\w+)\s*\(", text))


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()}


def main():
    header, libraries = sys.argv[1], sys.argv[2:]
    want = declared(header)
    if not want or not libraries:
        sys.exit(f"usage: symbols.py HEADER LIBRARY... ({len(want)} functions in {header})")
    bad = 0
    for library in libraries:
        have = exported(library)
        lines = [f"declared but not exported: {name}" for name in sorted(want - have)]
        lines += [f"exported but not declared: {name}" for name in sorted(have - want)]
        lines += [f"a symbol of LLVM: {name}" for name in sorted(have) if "llvm" in name.lower()]
        for line in lines:
            print(f"{library}: {line}")
        bad += len(lines)
        print(f"{library}: {len(have)} exported, {len(want)} declared, {len(lines)} wrong")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
