"""Errors that a person can act on.

    HeadwayError            what was tried and found, `hint` = what to type next, `exit_code` of `hw`
    ├── UsageError          wrong usage or bad input                      exit 2, HTTP 400
    ├── NotFoundError       no such job, or several match                 exit 3, HTTP 404 / 409
    ├── RefusedError        the request is understood and cannot be done  exit 1, HTTP 409
    │   └── LaterError      … now; nothing needs to change but time       exit 1, HTTP 409
    ├── UnreachableError    server or cluster could not be reached        exit 4, HTTP 503 (Temporary)
    ├── DamagedError        a file or message is not what it says         exit 1, HTTP 400
    └── VersionError        written by a newer Headway                    exit 1, HTTP 400

`temporary` tells whether the same call may succeed later without a change.
"""

from __future__ import annotations


class HeadwayError(Exception):
    exit_code = 1
    temporary = False
    code = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HeadwayError):
    exit_code = 2
    code = "usage"


class NotFoundError(HeadwayError):
    exit_code = 3
    code = "not_found"

    def __init__(self, message: str, hint: str = "", candidates: list[str] | None = None) -> None:
        super().__init__(message, hint)
        self.candidates = candidates or []


class RefusedError(HeadwayError):
    code = "refused"


class LaterError(RefusedError):
    temporary = True
    code = "later"


class UnreachableError(HeadwayError):
    exit_code = 4
    temporary = True
    code = "unreachable"


class DamagedError(HeadwayError):
    code = "damaged"


class VersionError(HeadwayError):
    code = "version"
