# The tables come as text, JSON and Markdown, with the same rows.
for table in activations ops params kernels; do
    eider list $table | grep -q .
    eider list $table --json >$table.json
    eider list $table --markdown >$table.md
    python3 - $table <<'PY'
import json
import sys
name = sys.argv[1]
rows = json.load(open(name + ".json"))
lines = open(name + ".md").read().splitlines()
assert rows and len(lines) == len(rows) + 2, (len(lines), len(rows))
for row, line in zip(rows, lines[2:]):
    wanted = row["name" if name == "kernels" else "signature"].replace("|", "\\|")
    assert line.startswith(f"| `{wanted}` | "), (row, line)
PY
done
eider list activations --json | python3 -c '
import json, sys
names = [row["name"] for row in json.load(sys.stdin)]
for want in ("tanh sigmoid relu relu_sq gelu_tanh gelu_erf quick_gelu silu softplus elu "
             "leaky_relu hardswish mish swiglu swiglu_oai glu reglu geglu").split():
    assert want in names and "d" + want in names, want
'
eider list devices | grep -q '^cpu '
eider list devices --json | python3 -c '
import json, sys
assert json.load(sys.stdin)[-1]["device"] == "cpu"'
