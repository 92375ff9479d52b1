"""`wandb.errors`: the names that scripts catch. Nothing here is raised but for mistakes that wandb refuses, too."""


class Error(Exception):
    """The base of all."""

    def __init__(self, message: str = "", context: object = None) -> None:
        super().__init__(message)
        self.message, self.context = message, context


class CommError(Error):
    """What needs wandb's server: it is not there."""


class UsageError(Error):
    """A call that makes no sense."""


class AuthenticationError(CommError):
    """Never raised: there is nothing to log in to."""


class LogError(Error):
    """Never raised."""


class UnsupportedError(UsageError):
    """Never raised."""


class WandbCoreNotAvailableError(Error):
    """Never raised."""


class ConfigError(Error):
    """Never raised: values may change."""


HINT = "the data of this run is in Headway: `hw ls`, `hw q ID`, `hw metrics ID`, `hw artifacts ls`"


def cannot_read(what: str) -> CommError:
    """What would have to come from wandb's server is refused, never answered with nothing."""
    return CommError(
        f"{what} reads from wandb's server, and Headway answers in its place here; {HINT}"
    )
