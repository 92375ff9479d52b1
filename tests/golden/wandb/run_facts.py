import os
import wandb

run = wandb.init(project="facts", name="before", mode=os.environ.get("WANDB_MODE", "offline"))
run.name = "after"
run.tags = run.tags + ("late",)
run.notes = "words"
print(run.id, run.url, run.dir, run.path, run.entity, run.group, run.job_type, run.start_time)
os.makedirs(run.dir, exist_ok=True)
with open(os.path.join(run.dir, "model.txt"), "w") as f:
    f.write("weights")
wandb.log({"step_time": 0.25})
wandb.log({})
wandb.log({"step_time": 0.5})
run.log_code(".")
run.mark_preempting() if hasattr(run, "mark_preempting") else None
wandb.finish()
