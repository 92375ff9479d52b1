# training loop in the style of small GPT trainers: evaluation every few iterations, one dict with the iteration in it
import math, os, time

wandb_log = True
wandb_project = "owt"
wandb_run_name = "gpt2" + str(124)
max_iters, eval_interval, learning_rate = 50, 10, 6e-4
master_process = int(os.environ.get("RANK", 0)) == 0
config_keys = [
    k
    for k, v in globals().items()
    if not k.startswith("_") and isinstance(v, (int, float, bool, str))
]
config = {k: globals()[k] for k in config_keys}
if wandb_log and master_process:
    import wandb

    wandb.init(project=wandb_project, name=wandb_run_name, config=config)
for iter_num in range(max_iters + 1):
    lr = learning_rate * (1 - iter_num / (max_iters + 1))
    if iter_num % eval_interval == 0 and master_process:
        losses = {"train": 4 * math.exp(-iter_num / 20), "val": 4.2 * math.exp(-iter_num / 20)}
        if wandb_log:
            wandb.log(
                {
                    "iter": iter_num,
                    "train/loss": losses["train"],
                    "val/loss": losses["val"],
                    "lr": lr,
                    "mfu": 0.3 * 100,
                }
            )
