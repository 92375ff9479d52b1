import wandb

run = wandb.init(project="resume", id="a1b2c3d4", resume="allow", config={"seed": 3})
start = wandb.run.step if wandb.run.resumed else 0
for step in range(start, 8):
    wandb.log({"metric": step * 0.5}, step=step)
assert run.id == "a1b2c3d4"
run.finish()
