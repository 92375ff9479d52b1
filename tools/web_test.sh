#!/usr/bin/env bash
# Tests of the page: its types and logic, and in Chromium against a real server. Called by `make test` and others.
#   tools/web_test.sh core|all
# What is missing is said in one line and skipped; with CI=true it is an error.
set -euo pipefail

say() { printf 'web: %s\n' "$*" >&2; }
skip() {
    say "$1: the tests of the page are skipped"
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

command -v npm >/dev/null || skip "no npm here (Debian: apt-get install npm)"
[ -d web/node_modules ] || skip "the packages of the page are not installed (make web)"
[ -f src/headway/server/static/index.html ] || skip "the page is not built (make web)"
cd web
npm run --silent check -- --output human >/dev/null || npm run --silent check
npm run --silent test
chromium=${HEADWAY_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
[ -n "$chromium" ] || skip "no Chromium here (Debian: apt-get install chromium)"
HEADWAY_CHROMIUM=$chromium npm run --silent "test:$1"
