# A program in two parts, what the first one leaves going to the second; places outside of rows.
try() {
    local code=0
    eider "$@" --device cpu 2>&1 || code=$?
    echo "-> $code"
}
in=(--in x=f32[64,40]:randn@1 --in weight=f32[40]:randn@2 --in dy=f32[64,40]:randn@3)
eider run rmsnorm_saved --in x=f32[64,40]:randn@1 --in weight=f32[40] --scalar eps=0.5 \
    --out rstd=rstd.npy --device cpu >/dev/null
eider run rmsnorm --grad weight --part rows "${in[@]}" --scalar eps=0.5 --out row1=row1.npy \
    --device cpu
eider run rmsnorm --grad weight --part columns "${in[@]}" --in row1=row1.npy --scalar eps=0.5 \
    --device cpu >split
eider run rmsnorm_dweight --in x=f32[64,40]:randn@1 --in rstd=rstd.npy --in dy=f32[64,40]:randn@3 \
    --device cpu >saved
cmp <(tail -1 split) <(tail -1 saved) && echo "the same gradient"
try run rmsnorm --grad weight "${in[@]}" --scalar eps=0.5
try run softmax --in x=f32[2,3] --part columns
try run rmsnorm_dweight --in x=f32[2,3] --in rstd=f32[2] --in dy=f32[2,3] --part rows
t=(--in logits=f32[12,9] --in target=i64[12]:arange)
try run cross_entropy "${t[@]}" --scalar ignore_index=-100 --checked
try bench cross_entropy "${t[@]}" --scalar ignore_index=-100 --checked --repeat 1
try run cross_entropy --in logits=f32[9,9]:zeros --in target=i64[9]:arange --out loss=a.npy \
    --out lse=b.npy --scalar ignore_index=-100 --checked
