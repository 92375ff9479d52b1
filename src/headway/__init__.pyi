"""The public names with their types. What they do stands in the modules they come from."""

from _thread import RLock
from collections.abc import Mapping
from typing import Any

from headway.client import distributed as distributed
from headway.client.api import finish as finish
from headway.client.api import flush as flush
from headway.client.api import init as init
from headway.client.artifact import artifact as artifact
from headway.client.config import Config
from headway.client.data_inputs import data as data
from headway.client.data_inputs import use_artifact as use_artifact
from headway.client.define import alert as alert
from headway.client.define import define_metric as define_metric
from headway.client.define import summary as summary
from headway.client.handle import Run as Run
from headway.client.logging_capture import correlation as correlation
from headway.client.media import Audio as Audio
from headway.client.media import Figure as Figure
from headway.client.media import File as File
from headway.client.media import Histogram as Histogram
from headway.client.media import Html as Html
from headway.client.media import Image as Image
from headway.client.media import Table as Table
from headway.client.media import Text as Text
from headway.client.media import Video as Video
from headway.client.preempt import on_preempt as on_preempt
from headway.client.progress import Progress as Progress
from headway.client.progress import track as track
from headway.client.timing import timed as timed
from headway.client.usage_marks import Usage as Usage
from headway.views.python_api import Job as Job
from headway.views.python_api import Jobs as Jobs
from headway.views.python_api import Series as Series
from headway.views.python_api import job as job
from headway.views.python_api import jobs as jobs
from headway.views.python_api import submit as submit

__version__: str
__all__ = [
    "Audio",
    "Figure",
    "File",
    "Histogram",
    "Html",
    "Image",
    "Job",
    "Jobs",
    "Progress",
    "Run",
    "Series",
    "Table",
    "Text",
    "Usage",
    "Video",
    "alert",
    "artifact",
    "config",
    "correlation",
    "data",
    "define_metric",
    "distributed",
    "finish",
    "flush",
    "init",
    "job",
    "jobs",
    "log",
    "on_preempt",
    "submit",
    "summary",
    "timed",
    "track",
    "use_artifact",
]

config: Config
_fork_gate: RLock

def log(
    values: Mapping[str, Any], step: int | None = None, tags: Mapping[str, Any] | None = None
) -> None:
    """Log numbers by name, at a step: `hw.log({"loss": 0.4, "lr": 1e-3}, step=i)`.

    Values: int, float, bool, Decimal, Fraction, NumPy and torch scalars; NaN and infinities are
    kept. Nested dictionaries become `outer/inner`. Without `step`, one more than the largest step so
    far in this process. `tags={"split": "val"}` makes series of their own. Images, tables and the
    like (`hw.Image(array)`) are kept, too.

    When it returns, the values survive `kill -9` of this process. It never raises.
    """
