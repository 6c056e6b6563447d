#!/bin/sh
# The long drills: tests marked `soak`, which read their length from FARHAND_SOAK (short or long).
# usage: scripts/soak.sh short|long [pytest arguments]
set -eu
cd "$(dirname "$0")/.."
length=${1:-long}
[ $# -eq 0 ] || shift
case $length in
short | long) ;;
*)
    echo "soak: LENGTH is short or long, not $length" >&2
    exit 2
    ;;
esac
result=0
FARHAND_SOAK=$length .venv/bin/pytest -m soak --timeout 3000 "$@" || result=$?
# 5 is pytest's word for: no such test exists.
[ "$result" -ne 5 ] || {
    echo "soak: there is no drill yet"
    exit 0
}
exit "$result"
