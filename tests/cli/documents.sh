# What README.md quotes is what the program prints, and its example is the file in examples/.
root=$EIDER_TEST_DATA/..
python3 "$root/tests/generated.py" "$root/README.md" "$root/docs/NUMERICS.md"
