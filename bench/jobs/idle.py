"""Does nothing for as long as it is told, in a process of its own: `idle.py SECONDS`."""

import sys
import time

time.sleep(float(sys.argv[1]))
