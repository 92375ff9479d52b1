import random
import wandb

random.seed(3)
group = "experiment-" + "abc"
for fold in range(3):
    run = wandb.init(
        project="cross-validation",
        group=group,
        job_type="fold",
        name=f"{group}-{fold}",
        config=dict(fold=fold),
        reinit=True,
    )
    val_accuracy = random.random()
    run.log(dict(val_accuracy=val_accuracy))
    run.finish()
