#!/usr/bin/env bash
# Builds the page (web/) into src/headway/server/static, when something in it has changed. Called by `make web`.
# Without npm, or when its packages cannot be had, Headway works without the page; with CI=true that is an error.
#   tools/web.sh STAMP
set -euo pipefail

stamp=$1

say() { printf 'web: %s\n' "$*" >&2; }
without() {
    say "$1: hw works, without its page in the browser"
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

command -v npm >/dev/null || without "no npm here (Debian: apt-get install npm)"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
    without "node is $(node --version), and the page needs 20.19 or newer"
cd web
if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    say "installing the locked packages of the page"
    npm ci --silent --no-audit --no-fund 2>/dev/null || without "npm ci failed; to see why: cd web && npm ci"
fi
say "building the page"
npm run --silent build -- --logLevel warn || { say "the page cannot be built"; exit 1; }
touch "../$stamp"
