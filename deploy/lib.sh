# lib.sh - what the shell scripts share. Sourced; sets nothing but functions and folders.
# shellcheck shell=bash
export PENSTOCK_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/penstock
export PENSTOCK_STATE=${XDG_STATE_HOME:-$HOME/.local/state}/penstock

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# The names of deploy/packages.txt that dpkg does not have; all of them where there is no dpkg.
missing_packages() {
    local root=$1 name
    grep -v '^#' "$root/deploy/packages.txt" | while read -r name; do
        [ -n "$name" ] || continue
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$name"
    done
}

# Installs what is missing; says what it does. Needs apt-get, and root or sudo, only if something is missing.
install_packages() {
    local root=$1 missing sudo=
    missing=$(missing_packages "$root")
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "these packages are missing, and there is no apt-get to install them with: $missing"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "these packages are missing; as root run: apt-get install $missing"
        sudo=sudo
    fi
    say "Installing packages: $missing"
    # shellcheck disable=SC2086
    if ! { $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing; } >/tmp/penstock-apt.$$ 2>&1; then
        tail -n 5 /tmp/penstock-apt.$$ >&2
        rm -f /tmp/penstock-apt.$$
        die "the packages could not be installed; is the network there? The lines above say what apt-get met."
    fi
    rm -f /tmp/penstock-apt.$$
}

free_mib() { df -Pm "$1" | awk 'NR == 2 { print $4 }'; }
