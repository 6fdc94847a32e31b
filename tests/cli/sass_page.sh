# The page in a browser: pointing at a term lights its IR, PTX and machine code, in every look.
eider sass 'out = silu(gate) * up' --target sm_90 --math approx --html page.html 2>text || {
    if grep -q 'nvdisasm was not found' text; then echo "SKIPPED: $(head -1 text)"; exit 77; fi
    cat text
    exit 1
}
timeout 60 python3 "$EIDER_TEST_DATA/page.py" page.html
