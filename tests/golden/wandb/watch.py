import wandb
from types import SimpleNamespace

wandb.login()
run = wandb.init(
    project="watch",
    save_code=True,
    config={"a": {"b": 1}},
    allow_val_change=True,
    resume=False,
    force=False,
)
try:
    wandb.watch(SimpleNamespace(), log="all", log_freq=10)
except Exception as error:
    print(type(error).__name__)
for i in range(3):
    wandb.log({"loss": 3 - i, "examples": i * 32})
wandb.unwatch()
wandb.join() if hasattr(wandb, "join") else wandb.finish()
