# Long work shows one line of progress, on a terminal only, and takes it away.
cat >on_a_terminal.py <<'PY'
import os
import pty
import subprocess
import sys
master, slave = pty.openpty()
done = subprocess.run(sys.argv[1:], stderr=slave, stdout=subprocess.PIPE, check=True)
os.close(slave)
shown = b""
while True:
    try:
        more = os.read(master, 4096)
    except OSError:  # the end, on Linux
        break
    if not more:
        break
    shown += more
assert done.stdout
sys.stdout.write(shown.decode().replace("\r", "<").replace("\033[K", ">").replace("<>", "\n"))
PY
on_a_terminal() { python3 on_a_terminal.py "$@" | sed 's/ on .*//'; }
on_a_terminal eider check 'out = x' --type bf16 --math fast --device cpu
on_a_terminal eider run 'out = x' --in x=f32[4] --device cpu
on_a_terminal eider bench 'out = x' --in x=f32[1000] --repeat 3 --device cpu
# What a tuning shows depends on the clock: its stages, a bar, the best so far.
python3 on_a_terminal.py eider tune 'out = x' --in x=f32[4000000] --space 'vec=4|8' --rounds 8 \
    --hot --device cpu --records . >shown
grep -q '^compile \[[#.]\{30\}\] [01]/1  [0-9.]* s  vec=' shown
grep -q '^check   \[#\{30\}\] 2/2  ' shown
grep -q '^time    \[[#.]\{30\}\] [0-9]*/[0-9]*  [0-9.]* s  best [0-9.]* us  vec=' shown
eider check 'out = x' --type bf16 --math fast --device cpu 2>quiet >/dev/null
[ ! -s quiet ]
