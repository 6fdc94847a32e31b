# EIDER_DUMP writes the stages that it names, of kernels from the compiler and from disk.
export EIDER_CACHE_DIR=$PWD/kernels EIDER_DUMP_DIR=$PWD/dump
p='out = silu(gate) * up'
EIDER_DUMP=program,ir,opt,ptx,cubin eider emit "$p" --target cpu --stage cubin -o a.o
key=$(basename dump/*.o .o)
[ "$(ls dump | wc -l)" = 5 ]
[ "$(cat "dump/$key.program.txt")" = "$p" ]
cmp a.o "dump/$key.o"
grep -q '^define ' "dump/$key.ir.ll" && grep -q '^define ' "dump/$key.opt.ll"
grep -q '\.text' "dump/$key.s"
eider cache ls --json | grep -q "\"$key\""

# From disk, the same; and nothing where it is off.
rm -r dump
EIDER_DUMP=cubin,opt eider emit "$p" --target cpu --stage cubin -o a.o
[ "$(ls dump | sort | tr '\n' ' ')" = "$key.o $key.opt.ll " ]
rm -r dump
for off in '' 0 false; do EIDER_DUMP=$off eider emit "$p" --target cpu --stage cubin -o a.o; done
[ ! -e dump ]

# What cannot be written is one warning.
EIDER_DUMP=ir,assembly eider emit "$p" --target cpu --stage cubin -o a.o 2>err.txt
grep -q "'assembly' is none of program, ir, opt, ptx, cubin, sass" err.txt
[ "$(wc -l <err.txt)" = 1 ]
EIDER_DUMP=sass eider emit "$p" --target cpu --stage cubin -o a.o 2>err.txt
grep -q 'no sass: the CPU has none' err.txt
touch file
export EIDER_DUMP_DIR=$PWD/file
EIDER_DUMP=ir,opt eider emit "$p" --target cpu --stage cubin -o a.o 2>err.txt
[ "$(grep -c 'dump: no file' err.txt)" = 1 ]
