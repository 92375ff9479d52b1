"""A training that looks like one: curves with noise that depend on its settings, checkpoints, colours. For pictures."""

import argparse
import math
import random
import sys
import time

import headway as hw

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--pause", type=float, default=0.005)
asked = parser.parse_args()

chance = random.Random(asked.seed * 7919 + int(asked.lr * 1e5) + asked.width)
model = {"name": "resnet", "width": asked.width}
hw.init(config={"lr": asked.lr, "model": model, "seed": asked.seed, "optimizer": "adamw"})
floor = 0.08 + 0.1 * abs(math.log10(asked.lr) + 1.5) ** 1.5 + 4 / asked.width
print(f"\033[1mresnet-{asked.width}\033[0m · {asked.width * 17_320:,} parameters · lr {asked.lr}")
best = math.inf
for step in hw.track(range(asked.steps), "train"):
    falling = math.exp(-step * (0.02 + asked.lr * 0.02))
    loss = floor + (2.3 - floor) * falling + chance.gauss(0, 0.03) * math.exp(-step / 300)
    lr = asked.lr * 0.5 * (1 + math.cos(math.pi * step / asked.steps))
    norm = abs(chance.gauss(1, 0.3)) * math.exp(-step / 200) + 0.1
    hw.log({"loss": loss, "lr": lr, "grad/norm": norm}, step=step)
    if step % 20 == 0:
        unseen = loss + 0.05 + abs(chance.gauss(0, 0.02))
        hw.log({"val/loss": unseen, "val/accuracy": 1 - unseen / 3}, step=step)
        print(
            f"\033[36mstep {step:5d}\033[0m  loss \033[1m{loss:.4f}\033[0m  val \033[33m{unseen:.4f}\033[0m"
        )
        if unseen < best and step:
            best = unseen
            print(f"\033[32m✓ checkpoint\033[0m saved: val {unseen:.4f}")
    if step == asked.steps // 2:
        print("\033[33mWARNING\033[0m: the loader waited 1.2 s for a batch", file=sys.stderr)
    sum(math.sqrt(k) for k in range(20_000))
    time.sleep(asked.pause)
