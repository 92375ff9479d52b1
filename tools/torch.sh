#!/usr/bin/env bash
# Makes the environment with PyTorch that the tests of hw.distributed use, once: about 200 MB to download.
# It lies beside the person's other caches, so that every checkout uses the same one. CI makes it with `make test`.
set -euo pipefail

version=2.13 # as in tests/needs.py
folder=${XDG_CACHE_HOME:-$HOME/.cache}/headway-tests/torch-$version
[ -e "$folder/.installed" ] && exit 0
printf 'test: installing PyTorch %s into %s\n' "$version" "$folder" >&2
mkdir -p "$folder"
"${PYTHON:-python3}" -m venv "$folder"
# One release, not a range: a newer one could bring gigabytes of CUDA.
"$folder/bin/python" -m pip install -q --disable-pip-version-check "torch==$version.0" numpy
touch "$folder/.installed"
