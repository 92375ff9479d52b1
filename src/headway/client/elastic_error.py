"""The error file of torch elastic, for scripts that do not use its `@record`.

torchrun names a file for each of its processes in TORCHELASTIC_ERROR_FILE and shows what it finds there; without
`@record` nobody writes it, and the summary of a failed run says `error_file: <N/A>`.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Mapping

from headway.model.limits import ELASTIC_ERROR_CHARS_MAX

VARIABLE = "TORCHELASTIC_ERROR_FILE"


def write_error_file(environ: Mapping[str, str], error: BaseException) -> None:
    """Written once: what `@record` or an earlier exception has left stays. Raises OSError."""
    path = environ.get(VARIABLE)
    if not path or os.path.exists(path):
        return
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    told = {
        "message": {
            "message": f"{type(error).__name__}: {error}"[:ELASTIC_ERROR_CHARS_MAX],
            "extraInfo": {
                "py_callstack": stack[-ELASTIC_ERROR_CHARS_MAX:],
                "timestamp": str(int(time.time())),
            },
        }
    }
    with open(path, "x", encoding="utf-8", errors="replace") as file:
        json.dump(told, file)
