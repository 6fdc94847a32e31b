# What README.md quotes is what the program prints, its example is the file in examples/, and
# every activation has its rows in the tables of errors.
root=$EIDER_TEST_DATA/..
python3 "$root/tests/generated.py" "$root/README.md" "$root/docs/NUMERICS.md"
python3 "$root/tests/numerics.py" "$root/docs/NUMERICS.md"
