# The doctor names what it found, and for the rest every path it tried.
eider doctor >text
grep -q '^eider  *[0-9]' text
grep -qi '^llvm  *19' text
grep -q '^cpu  *' text
EIDER_LIBCUDA=/nowhere/libcuda.so.1 eider doctor >text
grep -q '/nowhere/libcuda.so.1' text
eider doctor --json | python3 -c 'import json, sys
d = json.load(sys.stdin)
for tool in d["tools"]:
    assert tool["found"] or tool["tried"], tool'
