import math
import wandb


def train(config=None):
    with wandb.init(config=config, project="bools"):
        config = wandb.config
        for epoch in range(config.get("epochs", 6)):
            value = math.sin(epoch) if config.flag else math.cos(epoch)
            wandb.log({"value": value, "epoch": epoch})
            if value < -0.9:
                break


train({"flag": True, "epochs": 8})
train({"flag": False, "epochs": 8})
