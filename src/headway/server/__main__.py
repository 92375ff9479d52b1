"""`python -m headway.server`: the server of this home, in the foreground. Started by
`home/connect.py`.
"""

import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> int:
    """numpy would start a thread per core for linear algebra, of which there is none here."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    from headway.server.serve import main as serve

    if before is None:
        del os.environ[_THREADS]  # not for the jobs that we start
    else:
        os.environ[_THREADS] = before
    return serve()


if __name__ == "__main__":
    sys.exit(main())
