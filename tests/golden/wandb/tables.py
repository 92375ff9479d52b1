import numpy as np
import wandb

run = wandb.init(project="tables-quickstart")
table = wandb.Table(columns=["id", "image", "guess", "truth"])
for i in range(4):
    table.add_data(i, wandb.Image(np.full((8, 8, 3), i * 20, dtype=np.uint8)), i % 3, i % 2)
run.log({"predictions": table, "accuracy": 0.5})
frame = wandb.Table(data=[[1, 0.3], [2, 0.7]], columns=["x", "y"])
run.log(
    {
        "curve": wandb.plot.line(frame, "x", "y", title="custom"),
        "bars": wandb.plot.bar(frame, "x", "y"),
    }
)
run.finish()
