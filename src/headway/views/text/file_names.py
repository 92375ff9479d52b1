"""Names of files that are made of what a server said: of a job, an artifact, a step.

A server may be another machine's, and its word is data: a name of its making is a plain name in the
folder where the person stands, or it is refused (B20). Called by the views that write files.
"""

import re

from headway.model.errors import DamagedError

_PLAIN = re.compile(r"[\w][\w.+=@-]{0,199}\Z")


def file_name(text: object) -> str:
    """`text`, if it can be the name of a file here. DamagedError: it would lead elsewhere."""
    name = str(text)
    if not _PLAIN.match(name):
        raise DamagedError(
            f"the server named {name[:80]!r}, which cannot be the name of a file here",
            "give a name yourself with -o",
        )
    return name
