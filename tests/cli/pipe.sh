# A reader that goes away is no error; a full disk is, with exit code 4.
set -o pipefail
for i in 1 2 3; do eider list ops | true; done
eider list activations | head -1
code=0
eider list activations >/dev/full || code=$?
echo "-> $code"
