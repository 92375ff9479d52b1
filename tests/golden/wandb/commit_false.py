import wandb

wandb.init(project="commit")
for i in range(5):
    wandb.log({"loss": 1.0 / (i + 1)}, commit=False)
    wandb.log({"accuracy": i / 5})
wandb.log({"nested": {"a": 1, "b": {"c": 2.5}}})
wandb.finish()
