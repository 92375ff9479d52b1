import argparse
import wandb

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--no-cuda", action="store_true", default=False)
args = parser.parse_args()
wandb.init(project="pytorch-cnn-mnist", config=args)
config = wandb.config
config.batch_size = 64
wandb.config.update({"epochs": 3, "lr": 0.02}, allow_val_change=True)
wandb.config.update(args, allow_val_change=True)
for epoch in range(1, wandb.config.epochs + 1):
    wandb.log({"Test Accuracy": 100.0 * epoch / 3, "Test Loss": config.lr / epoch})
assert wandb.config["momentum"] == args.momentum and "lr" in wandb.config.keys()
