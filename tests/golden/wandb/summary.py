import wandb

run = wandb.init(project="summary")
best = 0
for epoch in range(6):
    acc = [0.1, 0.5, 0.4, 0.8, 0.7, 0.75][epoch]
    wandb.log({"acc": acc})
    if acc > best:
        best = acc
        wandb.run.summary["best_accuracy"] = best
        run.summary.update({"best_epoch": epoch})
wandb.summary["note"] = "done"
assert wandb.run.summary["best_accuracy"] == 0.8
run.finish()
