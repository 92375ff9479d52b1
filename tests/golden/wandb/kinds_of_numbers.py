import numpy as np
import wandb


class Tensor:
    """As torch's, in what is asked of it."""

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value

    def __float__(self):
        return float(self.value)


run = wandb.init(project="numbers")
run.log(
    {
        "np32": np.float32(0.5),
        "np64": np.float64(0.25),
        "npint": np.int64(7),
        "flag": True,
        "int": 3,
    }
)
run.log(
    {
        "zero_d": np.array(1.5),
        "nan": float("nan"),
        "inf": float("inf"),
        "text": "hello",
        "none": None,
    }
)
run.log({"list": [1, 2, 3], "large": 1e300, "small": -1e-300})
run.finish()
