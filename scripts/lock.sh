#!/bin/sh
# Resolves pyproject.toml, all extras and the dev group, for every platform, with hashes.
# usage: scripts/lock.sh [--upgrade]
set -eu
cd "$(dirname "$0")/.."
UV_CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/uv pip compile pyproject.toml \
    --universal --python-version 3.11 --all-extras --group dev --generate-hashes \
    --no-emit-index-url --no-emit-find-links --quiet --output-file requirements.lock "$@"
if grep -nE '://|^-|file:' requirements.lock; then
    echo "lock: the lock names an address; it must hold names, versions and hashes only" >&2
    exit 1
fi
