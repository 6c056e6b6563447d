# Sourced by the other scripts: how packages of the system are installed, where that is allowed.

# Prints the command prefix that may run apt-get, or fails where none may.
apt_prefix() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" -eq 0 ]; then
        echo "env DEBIAN_FRONTEND=noninteractive"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
        echo "sudo -n env DEBIAN_FRONTEND=noninteractive"
    else
        return 1
    fi
}

apt_has() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs the named packages; asks for fresh lists only when the ones at hand do not do.
apt_install() {
    prefix=$(apt_prefix) || return 1
    # shellcheck disable=SC2086
    $prefix apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 && return 0
    # shellcheck disable=SC2086
    $prefix apt-get update -qq || return 1
    # shellcheck disable=SC2086
    $prefix apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}
