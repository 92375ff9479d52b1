"""What `hw.init` returns: the run as an object, also for `with`. Called by client/api.py."""

from __future__ import annotations

from headway.client.interrupt import raise_if_signal

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from types import TracebackType

    from headway.client.config import Config
    from headway.client.run import Run as ProcessRun
    from headway.model.json_types import JsonMapping

_ID_WAIT_S = 5.0  # for the server's answer, when somebody asks for the id


class Run:
    """One run: `with hw.init(config={"lr": 0.1}) as run: run.log({"loss": 0.4}, step=0)`.

    `run.log`, `run.config` and `run.finish` are those of `headway` itself, as long as this is the
    run of the process. Leaving the `with` block finishes the run; an exception that leaves it makes
    the run failed.
    """

    def __init__(self, process: "ProcessRun") -> None:
        self._process = process
        self._number = process.number
        self._id: str | None = None

    @property
    def config(self) -> "Config":
        """The config of the run, a mapping; changes are written down."""
        return self._process.config

    @property
    def id(self) -> str:
        """The id of the job, such as `train-7f3c2`. That of a plain script is given by the server a
        moment after the start, which this waits for; without a server it is empty.
        """
        if self._id is None and not self._process.is_off and self._is_current():
            self._id = self._process.job_id(_ID_WAIT_S)
        return self._id or ""

    def log(
        self,
        values: "JsonMapping",
        step: "int | None" = None,
        tags: "JsonMapping | None" = None,
    ) -> None:
        """As `hw.log`."""
        if self._is_current():
            self._process.log(values, step, tags)

    def finish(self, exit_code: int | None = None) -> None:
        """As `hw.finish`. The next `hw.init` begins another run."""
        from headway.client import api

        if self._is_current():
            self._keep_id()
            api.finish(exit_code)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        tb: "TracebackType | None",
    ) -> None:
        if not self._is_current() or self._process.is_off:
            return
        try:
            self._keep_id()
            if error is None:
                self.finish()
            else:
                self._fail(error, tb)
        except Exception as trouble:  # P1: no call of ours raises into training
            raise_if_signal(trouble)

    def __repr__(self) -> str:
        return f"headway.Run({self._id or ''!r})"

    def _fail(self, error: BaseException, tb: "TracebackType | None") -> None:
        """How it ended is known, though the program may go on and begin another run."""
        from headway.client import hooks

        process = self._process
        place = process.place
        if isinstance(error, SystemExit):
            self.finish(hooks.code_of(error.code))
        elif place is not None and place.attached:
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
            process.exception("main", error, tb)
            process.end_run(code)
        else:
            process.finish()  # how the job ends, its process decides

    def _keep_id(self) -> None:
        if self._id is None:
            self._id = self._process.job_id()

    def _is_current(self) -> bool:
        if self._number == self._process.number:
            return True
        self._process.note("old run", "a run that is over was used; hw.init() returned a newer one")
        return False
