"""Numbers that are none: a loss or gradient that is not finite and ended the job."""

from headway.diagnose.rule import EXCEPTION, ROOT, rule

RULES = (
    rule(
        "nonfinite_loss",
        r"(?i)loss (?:is|became|went|was|=|==|:)+ ?(?:tensor\()?-?(?:nan|inf(?:inite|inity)?"
        r"|not finite|non-?finite)\b.{0,80}(?:stop|abort|exit|terminat|quit|rais|end)"
        r"|model diverged|NanLossDuringTraining|found (?:nan|inf)\w* in (?:local|global"
        r"|the)? ?(?:forward|grad|loss)|non-?finite (?:loss|grad|value)|(?:loss|grad\w*) (?:is"
        r"|are|was) (?:nan|not finite|non-?finite)"
        r"|loss scale already at minimum|minimum loss scale reached|returned nan values in its"
        r"|nan (?:loss|detected|encountered)|(?:detected|encountered|found|got"
        r"|contains?) (?:a )?(?:nan|inf)s?\b.{0,40}(?:loss|grad|param|weight|activation|output"
        r"|tensor)"
        r"|Tensor had (?:NaN|Inf)|CheckNumerics|loss (?:has )?diverged|loss.{0,20}(?:explod"
        r"|diverg)",
        "nan",
        "inf",
        "finite",
        "diverged",
        "loss scale",
        "explod",
        "checknumerics",
        confidence=0.9,
        role=ROOT,
        unless=r"(?i)\bskip|gradient overflow|NaN or Inf found in input tensor|ignor"
        r"|number of nan|nan iterations|warning|NaNs? in dataset|info",
    ),
    rule(
        "nonfinite_loss",
        r"(?i)FloatingPointError|probability tensor contains either|invalid values:|\bnan\b"
        r"|not finite|non-?finite|input contains (?:nan|inf)",
        "floatingpoint",
        "probability tensor",
        "invalid values",
        "nan",
        "finite",
        "input contains",
        confidence=0.86,
        role=ROOT,
        where=EXCEPTION,
        unless=r"(?i)convert float nan to integer|gradient checkpoint",
    ),
)
