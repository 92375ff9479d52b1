#!/usr/bin/env bash
# Installs the Debian packages that some tests use, when we are root; otherwise says in one line what will be skipped.
#   tools/need.sh COMMAND…
set -euo pipefail

for command in "$@"; do
    command -v "$command" >/dev/null && continue
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq "$command" >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq "$command" >/dev/null 2>&1; } || true
    fi
    command -v "$command" >/dev/null ||
        printf 'test: no %s here, so the tests that need it are skipped; type: sudo apt-get install %s\n' "$command" "$command" >&2
done
