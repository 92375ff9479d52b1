import numpy as np
import wandb

run = wandb.init(project="plots")
rng = np.random.default_rng(1)
y_true = rng.integers(0, 3, 30).tolist()
probs = rng.dirichlet(np.ones(3), 30)
run.log(
    {
        "cm": wandb.plot.confusion_matrix(
            y_true=y_true, preds=probs.argmax(1).tolist(), class_names=["a", "b", "c"]
        ),
        "acc": float((probs.argmax(1) == y_true).mean()),
    }
)
xs = [0, 1, 2]
run.log(
    {
        "series": wandb.plot.line_series(
            xs=xs, ys=[[1, 2, 3], [3, 2, 1]], keys=["up", "down"], title="t", xname="x"
        )
    }
)
run.log(
    {
        "scatter": wandb.plot.scatter(
            wandb.Table(columns=["h", "w"], data=[[1, 2], [3, 4]]), "h", "w"
        ),
        "hist": wandb.plot.histogram(wandb.Table(columns=["s"], data=[[0.1], [0.4]]), "s"),
        "done": 1,
    }
)
run.finish()
