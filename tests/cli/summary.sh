# Results without a file are summarised: NaN and infinities are counted, not averaged.
eider run 'out = 1.0 / x' --in x=f32[4]:arange --device cpu
eider run 'out = (x - x) / (x - x)' --in x=f32[3]:arange --device cpu
eider run 'a = x + y; b = x > y' --in x=i32[2,1]:arange \
    --in y=i32[3]:arange --out b:bool --device cpu
eider run '
    # two statements, one per line
    r = max(x, 0)
    out = r * r' --in x=f32[4]:arange --device cpu
printf 'in x\nout = x + 1\n' >program.txt
eider run @program.txt --in x=f32[3]:arange --device cpu
eider run 'out = x + 1' --in x=f32[3]:arange --device cpu --json |
    python3 -c 'import json, sys
r = json.load(sys.stdin)["results"][0]
print(r["name"], r["type"], r["shape"], r["first"])'
