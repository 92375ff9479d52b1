import time
import wandb

run = wandb.init(project="timed", config={"n": 100})
started = time.time()
total = 0
for i in range(run.config.n):
    total += 1 / (i + 1) ** 2
    run.log({"pi": (6 * total) ** 0.5, "error": abs(3.141592653589793 - (6 * total) ** 0.5)})
run.summary["pi"] = (6 * total) ** 0.5
run.finish()
