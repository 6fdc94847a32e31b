#!/usr/bin/env python3
"""Runs one command-line test.

    cli.py PROGRAM NAME.sh

NAME.sh runs under bash in an empty directory, with PROGRAM's folder first on PATH (so it says
`eider ...`) and $EIDER_TEST_DATA naming this folder.  Beside it, each optional:
    NAME.stdout.exact   standard output, byte for byte
    NAME.stdout.glob    standard output, where each line is a shell pattern
    NAME.stderr.exact, NAME.stderr.glob
    NAME.exit           the exit status, 0 when there is no such file; 77 always means skipped
EIDER_UPDATE_GOLDEN=1 rewrites the .exact and .exit files.
"""
import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile


def differences(path, kind, got):
    """What is wrong with `got`, as lines; nothing when it fits."""
    want = path.read_text(encoding="utf-8")
    if kind == "exact":
        fits = got == want
    else:
        got_lines, want_lines = got.splitlines(), want.splitlines()
        fits = len(got_lines) == len(want_lines) and all(
            fnmatch.fnmatchcase(g, w) for g, w in zip(got_lines, want_lines))
    return [] if fits else [f"--- {path.name} wants:", want, "--- got:", got]


def main():
    program, script = map(pathlib.Path, sys.argv[1:3])
    base = script.with_suffix("")
    env = dict(os.environ, LC_ALL="C.UTF-8")
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    env.setdefault("EIDER_TEST_DATA", str(script.parent.parent))
    env.setdefault("EIDER_TEST_BIN", str(program.parent))
    with tempfile.TemporaryDirectory(prefix="eider-cli-") as directory:
        env["HOME"] = env["XDG_CACHE_HOME"] = directory
        done = subprocess.run(["bash", "-eu", str(script.resolve())], cwd=directory, env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode == 77:
        print(done.stdout, done.stderr, sep="")
        sys.exit(77)

    update = os.environ.get("EIDER_UPDATE_GOLDEN") == "1"
    wrong = []
    exit_file = pathlib.Path(f"{base}.exit")
    want_exit = int(exit_file.read_text()) if exit_file.exists() else 0
    if update and done.returncode != want_exit:
        exit_file.write_text(f"{done.returncode}\n")
    elif done.returncode != want_exit:
        wrong.append(f"exit status {done.returncode}, expected {want_exit}")
    for stream, got in (("stdout", done.stdout), ("stderr", done.stderr)):
        for kind in ("exact", "glob"):
            path = pathlib.Path(f"{base}.{stream}.{kind}")
            if path.exists() and update and kind == "exact":
                path.write_text(got, encoding="utf-8")
            elif path.exists():
                wrong += differences(path, kind, got)
    if wrong:
        print(*wrong, sep="\n")
        print("--- all of stdout:", done.stdout, "--- all of stderr:", done.stderr, sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
