"""The entry of `hw`. Finds the verb, imports only its file, and turns errors into words and exit
codes.

`hw --version` is answered before anything else is imported: how fast `hw` starts is how it feels.
"""

import gc
import sys

# a command is short: what it reads, ten thousand jobs or files, is in use and no garbage
_OBJECTS_MANY = 100_000


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words == ["--version"]:
        from headway import __version__

        sys.stdout.write(f"hw {__version__}\n")
        return 0
    gc.set_threshold(_OBJECTS_MANY, 50)
    from headway.views.cli.dispatch import dispatch

    return dispatch(words)


if __name__ == "__main__":
    sys.exit(main())
