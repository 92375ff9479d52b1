import wandb


class WandbCallback:
    """In the style of training libraries that log only where a run is on."""

    def __init__(self, every=2):
        self.every = every

    def on_step(self, step, logs):
        if wandb.run is not None and step % self.every == 0:
            wandb.run.log({f"metrics/{k}": v for k, v in logs.items()}, step=step)


callback = WandbCallback()
callback.on_step(0, {"precision": 0.0})
wandb.init(project="detector", entity="somebody", dir=".", settings=wandb.Settings(console="off"))
for step in range(10):
    callback.on_step(step, {"precision": step / 10, "recall": 1 - step / 10})
wandb.finish(exit_code=0)
assert wandb.run is None
callback.on_step(11, {"precision": 1.0})
