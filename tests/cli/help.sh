# The program's help lists its commands and exit codes; every command has help of its own.
eider --help
for command in list emit run check bench sass tune cache doctor; do
    eider $command --help >help.txt
    grep -q '^Options:$' help.txt
    grep -q '^Examples:$' help.txt
done
[ "$(eider)" = "$(eider --help)" ]
[ "$(eider -h)" = "$(eider --help)" ]
[ "$(eider help run)" = "$(eider run --help)" ]
eider --version | grep -qx 'eider [0-9]*\.[0-9]*\.[0-9]*'
