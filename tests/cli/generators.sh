# Generated values depend on seed and position alone; a name is a seed.
run() { eider run 'out = x' --in "x=$1" --device cpu; }
run f32[6]:arange
run i64[2,2]:zeros
run bool[4]:arange
run 'bf16[300000]:arange'
for generator in randn uniform; do
    run f32[100000]:$generator@7 >a
    run f32[100000]:$generator@7 >b
    run f32[100000]:$generator@8 >c
    run f32[2]:$generator@7 >d
    cmp a b
    ! cmp -s a c
    [ "$(sed -n 2p a | cut -d' ' -f 4,5)" = "$(sed -n 2p d | cut -d' ' -f 4,5)" ]
    cat d
done
eider run 'out = y' --in y=f32[2] --device cpu >y
run f32[2] >x
! cmp -s x y
run i32[1000]:uniform | grep -q 'min -[0-9]* '
