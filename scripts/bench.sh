#!/bin/sh
# Measures against the baselines in bench/ and writes bench/results.json.
# usage: scripts/bench.sh short|long [arguments of python -m bench.run]
set -eu
cd "$(dirname "$0")/.."
length=${1:-long}
[ $# -eq 0 ] || shift
case $length in
short | long) ;;
*)
    echo "bench: LENGTH is short or long, not $length" >&2
    exit 2
    ;;
esac
if [ ! -f bench/run.py ]; then
    echo "bench: there is nothing to measure yet"
    exit 0
fi
[ "$length" = long ] || set -- --short "$@"
exec .venv/bin/python -m bench.run "$@"
