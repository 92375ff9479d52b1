import numpy as np
import wandb

wandb.init(project="histograms")
rng = np.random.default_rng(0)
for epoch in range(4):
    weights = rng.normal(size=100)
    wandb.log(
        {
            "weights": wandb.Histogram(weights),
            "weights/mean": weights.mean(),
            "epoch": epoch,
            "gradients": wandb.Histogram(np_histogram=np.histogram(weights)),
        }
    )
wandb.finish()
