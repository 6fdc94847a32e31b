# Files, descriptors and options that no one would choose: an exit status of the table, one
# line that says what is wrong, and no waiting.
expect() { # expect STATUS PATTERN COMMAND...
    local want=$1 pattern=$2 status=0
    shift 2
    timeout 60 "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$want" ] || { echo "exit $status, not $want: $*"; cat err.txt; }
    grep -q "$pattern" err.txt || { echo "no '$pattern' of: $*"; cat err.txt; }
    [ "$(wc -l <err.txt)" -le 1 ] || { echo "more than a line of: $*"; cat err.txt; }
}
run=(eider run 'y = x + 1' --device cpu)

mkfifo pipe.npy
mkdir folder.npy
expect 4 'pipe.npy: not a regular file' "${run[@]}" --in x=pipe.npy
expect 4 'folder.npy: not a regular file' "${run[@]}" --in x=folder.npy
expect 4 'folder.npy: Is a directory' "${run[@]}" --in x=f32[2] --out y=folder.npy
expect 4 '/dev/full: No space left' eider emit 'y = x' --target sm_90 -o /dev/full
expect 4 'folder.npy: Is a directory' eider run @folder.npy --in x=f32[2]
expect 2 'more than 2^63 bytes' "${run[@]}" --in x=f32[9223372036854775807,9223372036854775807]
expect 3 'GiB of host memory, there are' "${run[@]}" --in x=f32[1152921504606846976]
expect 2 'more than 8 dimensions' "${run[@]}" --in x=f32[1,1,1,1,1,1,1,1,1]
expect 3 'found .\\x1b' eider run $'y = x \033[31m' --in x=f32[2] --device cpu
expect 4 'no.npy: No such file' "${run[@]}" --in x=$'\a'no.npy
! grep -q $'\a' err.txt || echo 'a control character reached the terminal'

status=0
"${run[@]}" --in x=f32[2] >&- 2>err.txt || status=$?
[ "$status" = 4 ] || echo "exit $status without standard output"
"${run[@]}" --in x=f32[2]:zeros --out y=made.npy >&- 2>&- <&- || echo "exit $? without descriptors"
[ "$(stat -c %s made.npy)" = 136 ] || echo 'another file was written to'

# Every byte of the headers, and what comes first in a file, as something else.
"${run[@]}" --in x=f32[2,3]:arange --out y=good.npy
"${run[@]}" --in x=f32[2,3]:arange --out y=good.safetensors:t
python3 - <<'PYTHON'
import random, subprocess, sys
random.seed(1)
for name, tensor, n in (("good.npy", "", 118), ("good.safetensors", ":t", 80)):
    good = open(name, "rb").read()
    for i in range(40):
        bad = bytearray(good)
        for _ in range(random.choice((1, 1, 2, 8))):
            some = b"\x00\xff()[]{}',:09-L \\\"" + bytes([random.randrange(256)])
            bad[random.randrange(n)] = random.choice(some)
        if i % 5 == 0:
            bad = bad[:random.randrange(len(bad))]
        file = "bad-" + name
        open(file, "wb").write(bad)
        command = ["eider", "run", "y = x", "--device", "cpu", "--in", f"x={file}{tensor}"]
        done = subprocess.run(command, capture_output=True, timeout=60)
        lines = done.stderr.count(b"\n")
        if done.returncode not in (0, 2, 3, 4) or (done.returncode and lines != 1):
            print(name, i, done.returncode, done.stderr.decode(errors="replace"), bytes(bad))
PYTHON
