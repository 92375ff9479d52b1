"""A folder of data that a job brings along. Apart from `job`, which needs a newer Python than jobs have."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Folder:
    """A folder that the job finds below its working folder: fetched before the start, or sent while
    it runs.
    """

    name: str  # appears as ./<name>
    source: str | None = None  # `from`: a URL, fetched before the start
    target: str | None = None  # `to`: a URL, sent while the job runs and once more at its end
    # of the settings' `accounts`; its keys are never stored with the job
    account: str | None = None
    mode: str = "rw"  # ro: the job cannot change it
    mount: str | None = None  # a mount tool in place of a copy: blobfuse2, rclone, s3fs
    options: list[str] = field(default_factory=list)  # for the mount tool
