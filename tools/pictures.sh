#!/usr/bin/env bash
# Makes the pictures in docs/images anew, in a home of their own. Called by `make pictures`.
#   tools/pictures.sh PYTHON
set -euo pipefail

HEADWAY_HOME=$(mktemp -d /tmp/headway-XXXXXX)
export HEADWAY_HOME
trap 'hw server stop >/dev/null 2>&1 || true; rm -rf "$HEADWAY_HOME"' EXIT
python=$(realpath -s "$1")
top=$PWD
images=$top/docs/images
mkdir "$HEADWAY_HOME/project"  # so that no picture shows where the clone lies
cp -r examples "$HEADWAY_HOME/project"
cd "$HEADWAY_HOME/project"

hw server start >/dev/null 2>&1
"$python" "$top/tools/picture.py" "$images/run.svg" --columns 116 --keep 16 -- \
    'hw run -n 4 --name digits python examples/digits/train.py' 'hw metrics ID -m loss -m unseen' 'hw ls'
"$python" "$top/tools/picture.py" "$images/watch.svg" --columns 100 --rows 24 --view 30 -- \
    'hw run -n 4 --name digits python examples/digits/train.py --epochs 60'
hw submit --name sweep -n 2 python examples/digits/train.py --epochs 60 >/dev/null 2>&1
hw submit --name next python examples/digits/train.py >/dev/null 2>&1  # waits for the two that run
"$python" "$top/tools/picture.py" "$images/watch-all.svg" --columns 100 --rows 10 --view 4 -- 'hw watch'
hw abort --state running,waiting --yes >/dev/null 2>&1
"$python" "$top/tools/picture.py" "$images/crash.svg" --columns 116 --keep 30 -- \
    'hw run -n 4 --name crash python examples/crash/train.py'
# The page of `hw usage` is drawn by a browser; without one its picture stays as it is.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
    hw run -n 4 --name monitor python examples/monitor/train.py >/dev/null 2>&1
    job=$(hw ls --json --match monitor | "$python" -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])')
    hw usage "$job" --html "$HEADWAY_HOME/usage.html" 2>/dev/null
    "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,860 \
        --screenshot="$images/usage.png" "file://$HEADWAY_HOME/usage.html" >/dev/null 2>&1
    echo "docs/images/usage.png"
fi

# The page, with a sweep, a crash and a hang; Node comes with `make web`.
if [ -n "$browser" ] && [ -d "$top/web/node_modules" ]; then
    cp "$top"/tools/picture_jobs/*.py .
    git init -q . && git add -A && git -c user.name=headway -c user.email=headway@localhost commit -qm "first"
    hw delete --match '.' --yes >/dev/null 2>&1 || true  # the pictures of the page show only what follows
    for lr in 0.3 0.03 0.003; do
        for width in 32 128; do
            for seed in 0 1; do
                hw submit --name resnet -e sweep python train.py --lr "$lr" --width "$width" --seed "$seed" >/dev/null 2>&1
            done
        done
    done
    hw submit --name imports -e voc20 python -c 'import torchvision' >/dev/null 2>&1
    hw submit --name voc20 -e voc20 -n 4 --tag baseline python crash.py >/dev/null 2>&1
    hw submit --name hang -e voc20 -n 4 python hang.py >/dev/null 2>&1
    hw submit --name vit -e vit --tag night python train.py --steps 100000 --pause 0.02 >/dev/null 2>&1
    # until the hang is found, which takes half a minute of silence
    until hw why "$(hw ls --json --match '^hang-' | "$python" -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])')" --json 2>/dev/null | grep -q 'queue.get'; do
        sleep 2
    done
    (cd "$top/web" && node tests/pictures.mjs "$(command -v hw)" "$browser" "$images")
fi
