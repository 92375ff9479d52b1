"""`python -m headway.server`: the server of this home, in the foreground. Started by `settings/connect.py`."""

import sys

from headway.server.serve import main

if __name__ == "__main__":
    sys.exit(main())
