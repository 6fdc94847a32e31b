# The program on a network file system, where any open and any rename may fail once: results
# are right, a fault is one warning at most, and nothing bad is published.
faults=$EIDER_TEST_LIB/faults/disk_faults.so
[ -e "$faults" ] || { echo "SKIPPED: $faults was not built"; exit 77; }
export EIDER_CACHE_DIR=$PWD/kernels
run=(eider run 'y = silu(x) * 2' --device cpu --in x=f32[64]:arange --out)
"${run[@]}" y=want.npy >out.txt
cp -r kernels warm

# with_fault FAULT: runs the program; 1 when it made no such call.
with_fault() {
    rm -f got.npy log.txt
    env LD_PRELOAD="$faults" EIDER_TEST_FAULT="$1" EIDER_TEST_FAULT_BELOW="$PWD/kernels" \
        EIDER_TEST_FAULT_LOG="$PWD/log.txt" ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" \
        "${run[@]}" y=got.npy >out.txt 2>err.txt || { echo "$1: exit $?"; cat err.txt; }
    cmp got.npy want.npy || echo "$1: wrong"
    [ "$(wc -l <err.txt)" -le 1 ] || { echo "$1: more than a warning"; cat err.txt; }
    [ -e log.txt ]
}

# Every call, one after the other, of a process that writes (cold) and of one that reads (warm).
for state in cold warm; do
    for fault in open:ENOENT open:ESTALE open:EIO rename:ESTALE rename:EBUSY moved:ENOENT; do
        n=0
        while
            rm -rf kernels
            [ $state = cold ] || cp -r warm kernels
            n=$((n + 1))
            with_fault $fault:$n
        do
            eider cache verify >out.txt 2>&1 || { echo "$state $fault:$n"; cat out.txt; }
            "${run[@]}" y=got.npy >out.txt 2>err.txt
            cmp got.npy want.npy || echo "$state $fault:$n: wrong afterwards"
            [ ! -s err.txt ] || { echo "$state $fault:$n: afterwards"; cat err.txt; }
            [ "$(eider cache ls | wc -l)" = 1 ] || echo "$state $fault:$n: not kept afterwards"
        done
        echo "$state $fault $((n - 1))"
    done
done
