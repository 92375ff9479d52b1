"""Loaded by Python itself in every Python process of a job: this folder stands in front of its
PYTHONPATH.

It may meet any Python from 2.7 on, so nothing here is newer than that. From 3.9 on
`headway_bootstrap` does the work; an older one runs as if we were not here, and says nothing.
"""

import sys


def _chain():  # type: ignore[no-untyped-def]
    """Run the sitecustomize that we stand in front of, in an old Python; what it raises is its own
    matter.
    """
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = mine  # type: ignore[assignment]


if __name__ == "sitecustomize":
    if sys.version_info >= (3, 9):  # noqa: UP036  (the job's Python, not ours)
        import headway_bootstrap  # type: ignore[import-not-found]

        headway_bootstrap.run()
    else:
        _chain()  # type: ignore[no-untyped-call]
