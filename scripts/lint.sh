#!/bin/sh
# Format, lint, types and layers; every one is run, and the first failure does not hide the next.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
failed=""

step() {
    name=$1
    echo "lint: $name"
    shift
    "$@" || failed="$failed $name"
}

# Off: it would ask the network whether there is a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1
step "format" ruff format --check --quiet .
step "rules" ruff check --quiet .
step "types" pyright --warnings
step "layers" lint-imports --no-cache --no-logo
[ -z "$failed" ] || {
    echo "lint: failed:$failed" >&2
    exit 1
}
echo "lint: clean"
