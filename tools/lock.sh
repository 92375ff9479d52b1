#!/usr/bin/env bash
# Chooses the versions in requirements/*.txt anew. Called by `make lock`.
#   tools/lock.sh UV
# For every platform and Python at once, with hashes, without the name of an index. Nothing younger than a week: most
# packages that were taken over are found out within days.
set -euo pipefail

compile() {
    "$uv" pip compile "$@" --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --exclude-newer "7 days" --custom-compile-command "make lock"
}

uv=$1
compile requirements/uv.in -o requirements/uv.txt
compile pyproject.toml requirements/dev.in --all-extras -o requirements/dev.txt
