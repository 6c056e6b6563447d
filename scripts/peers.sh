#!/bin/sh
# Installs, through apt, the real programs that tests and the demo talk to.
# usage: scripts/peers.sh test|demo
# Never fails for want of a package: it lists what is missing and what that costs.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

# package | what is lost without it
peers() {
    case $1 in
    demo)
        cat <<'LIST'
cups-ipp-utils|the demo prints to a file only: no ippeveprinter, which stands for a real IPP printer
dbus|ippeveprinter cannot start on a machine without D-Bus
LIST
        ;;
    test)
        cat <<'LIST'
cups|no tests against a real CUPS queue
cups-client|no tests against a real CUPS queue (lpadmin sets it up)
cups-filters|no tests of PDF through CUPS
cups-ipp-utils|no tests against ippeveprinter, and no cross-check with ipptool
dbus|ippeveprinter cannot start on a machine without D-Bus
printer-driver-cups-pdf|no tests of PDF through a CUPS queue with a driver
postgresql|no tests on PostgreSQL: storage is tested on SQLite only
poppler-utils|no look into the PDF that came out of a printer
nftables|no drills with lost packets
faketime|no drills with a jumping clock
iproute2|no drills with a cut network
curl|no run of the commands that the README shows
sqlite3|no run of the documented backup
chromium|no tests of the agent in a browser
LIST
        ;;
    *)
        echo "usage: scripts/peers.sh test|demo" >&2
        exit 2
        ;;
    esac
}

missing() {
    peers "$1" | cut -d'|' -f1 | while read -r package; do
        apt_has "$package" || echo "$package"
    done
}

report() {
    echo "peers: skipped, because $2:"
    for package in $(missing "$1"); do
        echo "  $package: $(peers "$1" | sed -n "s/^$package|//p")"
    done
    echo "peers: to have them: apt-get install $(missing "$1" | tr '\n' ' ')"
}

set_name=${1:-test}
peers "$set_name" >/dev/null
command -v dpkg-query >/dev/null 2>&1 || {
    echo "peers: this is no Debian; tests use these where they are on PATH, and skip otherwise:"
    peers "$set_name" | sed 's/^\([^|]*\)|/  \1: without it /'
    exit 0
}
wanted=$(missing "$set_name")
[ -n "$wanted" ] || exit 0

prefix=$(apt_prefix) || {
    report "$set_name" "apt may not be used here (neither root nor passwordless sudo)"
    exit 0
}

# Tests run a PostgreSQL of their own: Debian's own cluster would only take a port and memory.
case $wanted in
*postgresql*)
    if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        $prefix sh -c 'mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf'
    fi
    ;;
esac

echo "peers: installing $(echo "$wanted" | tr '\n' ' ')"
# shellcheck disable=SC2086
if ! apt_install $wanted; then
    # One that is not to be had must not keep the others out.
    for package in $wanted; do
        apt_install "$package" || true
    done
fi
[ -z "$(missing "$set_name")" ] || report "$set_name" "apt could not install them"
