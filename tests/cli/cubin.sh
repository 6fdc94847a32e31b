# Machine code for a GPU, where an assembler is found.
eider emit 'out = x + 1' --target sm_90 --stage cubin -o kernel.cubin 2>text || {
    if grep -q assembler text; then echo "SKIPPED: no assembler: $(cat text)"; exit 77; fi
    cat text
    exit 1
}
[ "$(head -c 4 kernel.cubin | tail -c 3)" = ELF ]
