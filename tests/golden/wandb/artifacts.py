import json, os
import wandb

run = wandb.init(project="artifacts", job_type="train")
os.makedirs("checkpoints", exist_ok=True)
for epoch in range(3):
    with open(f"checkpoints/model-{epoch}.json", "w") as f:
        json.dump({"w": epoch}, f)
    run.log({"epoch": epoch, "loss": 1 / (epoch + 1)})
artifact = wandb.Artifact("model", type="model", metadata={"epochs": 3}, description="weights")
artifact.add_dir("checkpoints")
with artifact.new_file("readme.txt") as f:
    f.write("hello")
run.log_artifact(artifact, aliases=["latest", "best"])
wandb.save("checkpoints/*.json")
run.finish()
