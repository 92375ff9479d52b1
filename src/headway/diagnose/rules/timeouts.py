"""Time: a data loader that gave nothing for too long."""

from headway.diagnose.rule import ROOT, rule

RULES = (
    rule(
        "dataloader_hang",
        r"DataLoader timed out after|[Dd]ata ?loader\b.{0,60}(?:hung|stuck|timed out|no (?:batch"
        r"|data) for)|Timeout: .*waiting for (?:the )?(?:next batch|data)",
        "dataloader",
        "data loader",
        "waiting for",
        confidence=0.92,
        role=ROOT,
    ),
)
