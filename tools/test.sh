#!/usr/bin/env bash
# Runs tests several at a time; those that failed once more, one after the other, with nothing beside them.
#   tools/test.sh PYTHON WORKERS TIMEOUT_S WHAT…
# What fails twice, or in numbers, fails. A test that passes alone does not, but is named at the end: it hangs on chance
# or on a quiet machine, and is to be mended.
set -uo pipefail
python=$1 workers=$2 timeout_s=$3
shift 3
again_max=20

# Pytest's own notes of what failed; empty where it failed otherwise (nothing collected, a process left behind).
failed() { "$python" -c 'import json; print(*json.load(open(".pytest_cache/v/cache/lastfailed")), sep="\n")' 2>/dev/null; }

"$python" -m pytest "$@" -n "$workers" --dist worksteal --timeout "$timeout_s" --cache-clear --durations 10
code=$?
[ $code = 1 ] || exit $code
mapfile -t names < <(failed)
[ ${#names[@]} -ge 1 ] && [ ${#names[@]} -le $again_max ] || exit $code

printf '\ntest: %s failed; once more, alone:\n' "${#names[@]}" >&2
printf '  %s\n' "${names[@]}" >&2
"$python" -m pytest --last-failed --last-failed-no-failures none "$@" --timeout "$timeout_s" || exit $?
printf '\ntest: failed beside others, passed alone; to be mended:\n' >&2
printf '  %s\n' "${names[@]}" >&2
