#!/usr/bin/env bash
# Installs the programs that some tests use, when we are root; otherwise says in one line what will be skipped.
#   tools/need.sh PROGRAM…
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin  # where daemons lie

packages() {
    case $1 in
        gcc) echo gcc libc6-dev ;;
        unshare) echo util-linux ;;
        sbatch) echo slurm-wlm munge ;;
        mariadbd) echo mariadb-server ;;
        sshd) echo openssh-server openssh-client ;;
        mpirun) echo openmpi-bin ;;
        dockerd) echo docker.io ;;
        busybox) echo busybox-static ;;
        ip) echo iproute2 ;;
        node) echo nodejs ;;
        rclone) echo rclone fuse3 ;;
        *) echo "$1" ;;
    esac
}

install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# An environment beside the person's other caches; tests/needs.py looks there too.
own_environment() {
    local folder=${XDG_CACHE_HOME:-$HOME/.cache}/headway-tests/$1
    [ -e "$folder/.installed" ] && return 0
    python3 -m venv "$folder" && "$folder/bin/python" -m pip install -q --disable-pip-version-check "$2" >/dev/null 2>&1 &&
        touch "$folder/.installed"
}

# Servers that no distribution has: from the registries of their languages, where their installers are at hand.
foreign() {
    case $1 in
        azurite-blob) command -v npm >/dev/null && npm install -g --silent azurite >/dev/null 2>&1 ;;
        jupyter-kernel) own_environment jupyter ipykernel ;;
        moto_server) own_environment moto 'moto[server]' ;;
        *) return 1 ;;
    esac
}

# First what will be done, so that a person can stop it; TOOLS=no installs nothing.
missing=()
for program in "$@"; do
    command -v "$program" >/dev/null && continue
    case $program in
        jupyter-kernel) [ -e "${XDG_CACHE_HOME:-$HOME/.cache}/headway-tests/jupyter/.installed" ] && continue ;;
        moto_server) [ -e "${XDG_CACHE_HOME:-$HOME/.cache}/headway-tests/moto/.installed" ] && continue ;;
    esac
    missing+=("$program")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "${TOOLS:-}" = no ]; then
    printf 'test: TOOLS=no: nothing is installed; tests that need %s are skipped\n' "${missing[*]}" >&2
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    printf 'test: will install, with apt-get, npm -g and pip (in ~/.cache/headway-tests): %s; TOOLS=no leaves that out\n' "${missing[*]}" >&2
fi

for program in "${missing[@]}"; do
    foreign "$program" && continue
    case $program in
        azurite-blob | jupyter-kernel | moto_server)
            printf 'test: no %s here, so the tests that need it are skipped (npm: azurite; pip: moto[server], ipykernel)\n' "$program" >&2
            continue
            ;;
    esac
    read -ra wanted <<<"$(packages "$program")"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        printf 'test: installing %s (apt-get)\n' "${wanted[*]}" >&2
        install "${wanted[@]}" || { apt-get update -qq >/dev/null 2>&1 && install "${wanted[@]}"; } || true
    fi
    command -v "$program" >/dev/null ||
        printf 'test: no %s here, so the tests that need it are skipped; type: sudo apt-get install %s\n' \
            "$program" "${wanted[*]}" >&2
done
