import wandb

for lr in (0.1, 0.01, 0.001):
    run = wandb.init(
        project="several", config={"lr": lr}, name=f"lr-{lr}", reinit=True, group="sweep"
    )
    for step in range(4):
        run.log({"loss": lr * (4 - step)})
    run.finish()
