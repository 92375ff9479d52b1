"""Which way a metric is better, by the words of its name: `val/loss` wants the least, `val/acc` the
most, `lr` neither. Called by tables, by `hw best`, and by the store for the best value of a series.
"""

import re
from functools import lru_cache
from typing import Final, Literal

Direction = Literal["min", "max"]
_LOW: Final = frozenset(
    "loss error err perplexity ppl nll mse rmse mae mape wer cer fid bpb bpc".split()
)
_HIGH: Final = frozenset(
    "accuracy acc precision recall f1 auc auroc map miou iou dice bleu rouge psnr ssim reward".split()
)
_NEITHER: Final = frozenset("scale weight lr count time seconds".split())  # `loss_scale` is no loss
_WORD: Final = re.compile(r"[a-z]+[0-9]*")


@lru_cache(maxsize=4096)
def direction(name: str) -> Direction | None:
    """`min` or `max`; None where the name does not say."""
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)  # `valLoss`
    words = set(_WORD.findall(f"{name} {parted}".lower()))
    low, high = bool(words & _LOW), bool(words & _HIGH)
    if low == high or words & _NEITHER:
        return None
    return "min" if low else "max"
