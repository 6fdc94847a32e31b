# A wrong command line is one error that says what would be right, and exit code 2.
try() {
    local code=0
    eider "$@" 2>&1 || code=$?
    echo "-> $code"
}
try rnu
try frobnicate
try run
try list
try list activation
try list ops extra
try run 'out = x' --inn x=f32[1]
try run 'out = x' --stage ptx
try run 'out = x' --in
try run 'out = x' --math quick
try run 'out = x' --json=1
try emit 'out = x' --with-forward
try emit 'out = x' --grad x,,y
try check
try check 'out = x' --all
try check 'out = x' --max-ulp few
try bench 'out = x' --repeat 0
try run softmx
try run 'silu(x)'
echo 'out = x' >kernel.txt
try run kernel.txt
