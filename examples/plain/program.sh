#!/bin/sh
# A program that knows nothing of Headway.
echo "running as $(whoami 2>/dev/null || id -u) in $(pwd)"
for step in 1 2 3 4 5; do
    echo "step $step"
    sleep 0.3
done
echo "a warning goes to stderr" >&2
