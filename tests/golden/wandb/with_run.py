import math
import wandb

config = dict(
    lr=1e-3, batch_size=64, layers=[128, 64], optimizer={"name": "adam", "betas": [0.9, 0.999]}
)
with wandb.init(project="demo", config=config, tags=["baseline", "v1"], notes="first") as run:
    for step in range(20):
        run.log({"train/loss": math.exp(-step * run.config["lr"] * 100), "lr": run.config.lr})
    run.log({"val/acc": 0.91})
