#!/bin/sh
# Makes .venv with everything that requirements.lock names, and the package itself, editable.
# Idempotent: a stamp tells when nothing changed.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

PYTHON=${PYTHON:-python3}
STAMP=.venv/farhand.stamp

say() { echo "setup: $*"; }
die() {
    echo "setup: $*" >&2
    exit 1
}

command -v "$PYTHON" >/dev/null 2>&1 || die "no $PYTHON here; install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$PYTHON is $("$PYTHON" -V 2>&1); Python 3.11 or newer is needed: make setup PYTHON=python3.12"

wanted=$(
    cat requirements.lock pyproject.toml scripts/setup.sh | cksum
    pwd
)
[ -x .venv/bin/farhand ] && [ "$(cat $STAMP 2>/dev/null)" = "$wanted" ] && exit 0

make_venv() {
    "$PYTHON" -m venv "$@" .venv
}

# A virtual environment does not survive being moved: its commands name their folder.
if [ -f $STAMP ] && [ "$(tail -n 1 $STAMP)" != "$(pwd)" ]; then
    say "this folder was moved or copied; making .venv anew"
    rm -rf .venv
fi

# Debian ships python3 without ensurepip; python3-venv brings it.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "making .venv"
    if ! "$PYTHON" -c 'import ensurepip' >/dev/null 2>&1; then
        version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        say "$PYTHON has no ensurepip; installing python3-venv through apt"
        apt_install python3-venv "python$version-venv" ||
            die "$PYTHON cannot make virtual environments, and apt is not allowed here; have an administrator run: apt-get install python3-venv"
    fi
    make_venv --clear || die "could not make .venv with $PYTHON -m venv"
fi

# uv takes seconds where pip takes a minute. It is itself installed from the lock, by hash; it does
# not read pip's configuration, so an index set there is handed on. Where it fails, pip does it all.
install_uv() {
    one=$(mktemp)
    sed -n '/^uv==/,/^ *#/p' requirements.lock | grep -v '^ *#' >"$one"
    .venv/bin/python -m pip install --quiet --require-hashes --no-deps -r "$one"
    result=$?
    rm -f "$one"
    return $result
}
install_lock() {
    if install_uv && .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock; then
        return 0
    fi
    say "uv did not manage it; going on with pip"
    .venv/bin/python -m pip install --quiet --require-hashes -r requirements.lock
}

index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
export UV_PYTHON_DOWNLOADS=never

say "installing from requirements.lock"
install_lock || die "the packages of requirements.lock could not be installed; see the message above (is the package index reachable?)"
# The build tools are in the lock, so building needs no network.
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable . ||
    die "the package itself could not be installed; see the message above"
printf '%s\n' "$wanted" >$STAMP
say "done: .venv/bin/farhand"
