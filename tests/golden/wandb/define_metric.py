import wandb

run = wandb.init(project="define-metric")
wandb.define_metric("custom_step")
wandb.define_metric("validation_loss", step_metric="custom_step", summary="min")
run.define_metric("train/*", step_metric="train/step")
for i in range(10):
    wandb.log({"train_loss": 0.1 * i, "custom_step": i**2, "validation_loss": 1 / (i + 1)})
    run.log({"train/step": i * 100, "train/acc": i / 10})
run.finish()
