import wandb

quiet = wandb.init(project="none", mode="disabled")
quiet.log({"lost": 1})
wandb.log({"lost": 2})
quiet.finish()
with wandb.init(project="some") as run:
    run.log({"kept": 3})
