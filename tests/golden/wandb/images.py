import numpy as np
import wandb

with wandb.init(project="media") as run:
    for step in range(3):
        images = [
            wandb.Image(
                np.random.randint(0, 255, (16, 16, 3), dtype=np.uint8), caption=f"sample {n}"
            )
            for n in range(2)
        ]
        run.log({"examples": images, "fid": 30.0 - step})
    mask = np.zeros((16, 16), dtype=np.uint8)
    run.log(
        {
            "segmented": wandb.Image(
                np.zeros((16, 16, 3), dtype=np.uint8),
                masks={"predictions": {"mask_data": mask, "class_labels": {0: "sky"}}},
            ),
            "iou": 0.7,
        }
    )
