import wandb

wandb.init(project="steps")
for step in range(0, 50, 5):
    wandb.log({"a": step * 2.0}, step=step)
    wandb.log({"b": -step}, step=step)
wandb.log({"c": 1.5}, step=100)
wandb.log({"a": 3.5})
wandb.finish()
