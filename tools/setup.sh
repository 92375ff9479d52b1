#!/usr/bin/env bash
# Makes the virtual environment with everything locked in requirements/, and `hw` in it. Called by `make setup`.
#   tools/setup.sh VENV PYTHON
set -euo pipefail

venv=$1
python=$2

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# Installs a Debian package when we are root; otherwise says what to type.
need_package() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $1 (apt-get)"
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq "$1" >/dev/null 2>&1 || { apt-get update -qq >/dev/null && apt-get install -y -qq "$1" >/dev/null; } ||
            fail "$1 could not be installed; try: apt-get install $1"
    else
        fail "$2; type: sudo apt-get install $1"
    fi
}

check_python() {
    command -v "$python" >/dev/null || fail "no $python here; Headway needs Python 3.11 or newer: make setup PYTHON=/path/to/python3.11"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" -V 2>&1), and Headway needs 3.11 or newer: make setup PYTHON=/path/to/python3.11"
}

# Debian splits venv and ensurepip off into a package of their own.
make_venv() {
    [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 && return
    if ! "$python" -c 'from ensurepip import bootstrap; import venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        need_package "python$version-venv" "$python cannot make virtual environments"
    fi
    say "making $venv"
    "$python" -m venv --clear "$venv"
}

# uv does not read pip's configuration; a machine that has a mirror has told pip about it.
use_pips_index() {
    if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
        index=$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || printf '%s' "${PIP_INDEX_URL:-}")
        [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
    fi
    if [ -z "${SSL_CERT_FILE:-}" ] && [ -n "${PIP_CERT:-}" ]; then
        export SSL_CERT_FILE="$PIP_CERT"
    fi
}

install() {
    say "installing the locked packages"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
    use_pips_index
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" --require-hashes -r requirements/dev.txt || {
        say "uv could not install them; trying pip"
        "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
    }
    # hatchling is in the lock, so the build needs no index.
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps --no-build-isolation --offline -e .
}

check_python
make_venv
install
say "done: $venv/bin/hw"
