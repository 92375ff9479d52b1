import numpy as np
import wandb
from wandb import AlertLevel

run = wandb.init(project="alerts")
threshold = 0.3
for i in range(5):
    acc = i / 10
    run.log({"accuracy": acc})
    if acc < threshold:
        run.alert(
            title="Low accuracy",
            text=f"Accuracy {acc} is below {threshold}",
            level=AlertLevel.WARN,
            wait_duration=300,
        )
run.log({"page": wandb.Html("<b>bold</b>"), "loss": 0.5})
run.finish()
