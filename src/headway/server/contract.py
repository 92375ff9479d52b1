"""The answers of the server as types: what `docs/reference/openapi.json` and the page's TypeScript
are made from.

Every route names one of these as its `answer` (`server/app.py`). With HEADWAY_CHECK_ANSWERS=1, as
our tests set it, an answer that does not fit its type is an error of the server.

Times are ISO 8601 in UTC. A value that is not known is null. A number that JSON cannot hold is one
of the texts "NaN", "Infinity" and "-Infinity".
"""

from typing import Any

import msgspec

from headway.diagnose import stacks

Number = float | str  # a text only for what JSON cannot hold
Json = Any  # data of a person or a program: anything that JSON can hold
Time = str
Raw = bytes  # of a route that answers no JSON: a file, a stream, text


class Answer(msgspec.Struct, kw_only=True, rename={"class_": "class", "from_": "from"}):
    """What all answers have in common: fields are named, and `class_` is `class` outside."""


class Empty(Answer):
    """Nothing to say beyond the status."""


class ErrorBody(Answer):
    code: str
    message: str
    hint: str
    candidates: list[str]


class ErrorAnswer(Answer):
    """What every route answers when it cannot do what it was asked for."""

    error: ErrorBody


# -- jobs


class Cause(Answer):
    """Why an attempt ended: a word of the failure taxonomy, its class, and one line for a person."""

    cause: str
    class_: str
    text: str
    rank: int | None = None


class Health(Answer):
    """What is wrong with a job that runs: a hang, or slowness."""

    kind: str
    cause: str
    class_: str
    text: str
    rank: int | None
    since: Time


class Progress(Answer):
    msg: list[str]
    completed: Number
    total: Number | None
    rate: Number | None
    eta_s: Number | None
    state: str
    rank: int | None
    source: str
    started_at: Time | None
    updated_at: Time | None


class Spread(Answer):
    min: float
    min_rank: int
    max: float
    max_rank: int


class UsageShort(Answer):
    """The last sample of a running job, or means and peak of an ended one."""

    time: Time
    ranks: int
    gpus: int
    cpu_percent: float | None
    memory_bytes: float | None
    gpu_percent: float | None
    gpu_memory_bytes: float | None
    peak_memory_bytes: int | None
    peak_rank: int | None
    spread: dict[str, Spread]


class Waiting(Answer):
    """What a job waits for, as lists tell it."""

    attempt: int
    next_at: Time | None
    after: list[str]
    ahead: int | None
    word: str | None


class Retries(Answer):
    total: int
    counted: int
    max: int
    next_at: Time | None
    text: str | None


class Hold(Answer):
    since: Time | None
    until: Time | None
    gpus: int
    gpu_hours: float


class After(Answer):
    id: str
    state: str | None  # null: nothing more will come of it, or it was deleted


class RaisedException(Answer):
    where: str
    exc_type: str
    message: str
    traceback: str
    file: str | None = None
    line: int | None = None
    source: str | None = None
    thread: str | None = None
    time_ns: int | None = None


class Process(Answer):
    rank: int
    local_rank: int | None
    pid: int | None
    state: str
    exit_code: int | None
    signal: int | None
    reason: str | None
    started_at: Time | None
    ended_at: Time | None
    exception: RaisedException | None
    logs: dict[str, str | None]


class Task(Answer):
    name: str
    node: str | None
    state: str
    heard_at: Time | None
    processes: list[Process]
    way: str | None = None
    way_trouble: str | None = None


class Attempt(Answer):
    number: int
    state: str
    cause: Cause | None
    exit_code: int | None
    signal: int | None
    engine_id: str | None
    engine_word: str | None
    retry: dict[str, Json] | None
    started_at: Time | None
    ended_at: Time | None
    tasks: list[Task]


class JobHead(Answer):
    """What a job is, in lists and in full."""

    id: str
    uuid: str
    name: str
    experiment: str | None
    state: str
    state_since: Time | None
    cluster: str
    engine: str
    engine_id: str | None
    engine_url: str | None
    attach: str | list[str] | None
    command: list[str]
    cwd: str
    code: str | None
    gpus: int
    processes: int
    multi_process: bool
    submitted_at: Time | None
    started_at: Time | None
    ended_at: Time | None
    elapsed_s: float | None
    exit_code: int | None
    signal: int | None
    parent: str | None
    tags: list[str]
    star: bool
    bug: bool
    description: str
    host: str | None
    guest_of: str | None
    monitor: str | None
    array: str | None
    array_index: int | None
    parameters: dict[str, Json]
    smoke: bool


class Found(Answer):
    """What a word means that a person typed; `said`: how it was chosen, where not by its id."""

    id: str
    uuid: str
    kind: str
    state: str
    said: str


class Needs(Answer):
    """What was asked for; null where nothing was."""

    cpus: int | None
    memory_bytes: int | None
    max_duration_s: float | None


class Job(JobHead):
    """`hw q ID --json`."""

    cause: Cause | None
    health: Health | None
    priority: int
    needs: Needs
    retries: Retries
    hold: Hold | None
    reserved: bool
    after: list[After]
    output_dir: str
    outputs: str | None
    config: Json
    progress: list[Progress]
    usage: UsageShort | None
    metrics: dict[str, Number]
    page: str | None
    image: str | None
    roles: list[dict[str, Json]]
    folders: list[dict[str, Json]]
    definition: dict[str, Json]
    attempts: list[Attempt]


class JobRow(Answer):
    """A row of `hw ls --json`. With `brief` what is empty is left out; an array is one row, too."""

    id: str
    name: str
    state: str
    uuid: str | None = None
    experiment: str | None = None
    state_since: Time | None = None
    cluster: str | None = None
    engine: str | None = None
    engine_id: str | None = None
    engine_url: str | None = None
    attach: str | list[str] | None = None
    command: list[str] = []
    cwd: str | None = None
    code: str | None = None
    gpus: int = 0
    processes: int = 1
    multi_process: bool = True
    submitted_at: Time | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    parent: str | None = None
    tags: list[str] = []
    star: bool = False
    bug: bool = False
    description: str = ""
    host: str | None = None
    guest_of: str | None = None
    monitor: str | None = None
    array: str | None = None
    array_index: int | None = None
    parameters: dict[str, Json] = {}
    config: dict[str, Json] = {}
    smoke: bool = False
    health: Health | None = None
    cause: Cause | None = None
    progress: list[Progress] = []
    metrics: dict[str, Number] = {}
    page: str | None = None
    image: str | None = None
    definition: dict[str, Json] = {}
    waiting: Waiting | None = None
    usage: UsageShort | None = None
    nodes: list[str] = []
    heard_at: Time | None = None
    is_array: bool = False
    jobs: int | None = None
    states: dict[str, int] | None = None


class FailedElement(Answer):
    id: str
    index: int
    cause: Cause | None


class JobArray(Answer):
    """Many jobs that were submitted as one."""

    id: str
    uuid: str
    name: str
    is_array: bool
    jobs: int
    states: dict[str, int]
    state: str
    experiment: str | None
    cluster: str
    parent: str | None
    submitted_at: Time | None
    started_at: Time | None
    ended_at: Time | None
    failed: list[FailedElement]
    stopped: int | None = None


class JobEvent(Answer):
    seq: int
    time: Time
    type: str
    attempt: int | None
    rank: int | None
    data: Json


class Attach(Answer):
    argv: list[str] | None


class Plan(Answer):
    """Exactly what the engine would get."""

    text: str
    plan: dict[str, Json]
    gpus: int


class Provenance(Answer):
    git: dict[str, Json] | None = None
    snapshot: dict[str, Json] | str | None = None
    python: str | None = None
    executable: str | None = None
    packages: dict[str, str] | None = None
    user: str | None = None
    host: str | None = None
    platform: str | None = None
    command: list[str] | None = None


# -- what a job told


class Line(Answer):
    time: Time | None
    rank: int
    task: str
    attempt: int
    stream: str
    text: str
    open: bool = False  # it has no line end yet: the next line of this stream belongs to it


class Lines(Answer):
    lines: list[Line]
    more: bool
    cursor: str
    timed_out: bool = False


class Stream(Answer):
    task: str
    attempt: int
    name: str
    kind: str
    rank: int | None
    position: int
    path: str | None


class LogRecord(Answer):
    """A record of `logging`."""

    seq: int
    time: Time
    attempt: int
    rank: int | None
    level: str
    levelno: int
    logger: str
    text: str
    printed: bool
    pid: int | None = None
    process: str | None = None
    thread: str | None = None
    file: str | None = None
    line: int | None = None
    func: str | None = None
    cut: bool = False


class Records(Answer):
    records: list[LogRecord]
    after: int
    more: bool
    timed_out: bool


class Series(Answer):
    """The points of one rank and attempt."""

    rank: int
    attempt: int
    step: list[int | None]
    time: list[Time]
    value: list[Number]


class Media(Answer):
    """An image, a table and the like; `number` names it for its bytes."""

    number: int
    name: str
    step: int
    time: Time | None
    attempt: int
    rank: int | None
    kind: str
    mime: str
    size: int
    meta: dict[str, Json]


class MetricDefinition(Answer):
    x: str | None
    goal: str | None
    summary: list[str]


class Tracked(Answer):
    """What a program said of its metrics and of its outcome."""

    definitions: dict[str, MetricDefinition]
    summary: dict[str, Json]
    data: list[dict[str, Json]]


class ArtifactFile(Answer):
    path: str
    size: int
    digest: str
    mode: int
    lost: bool = False
    changed: bool = False


class ArtifactHead(Answer):
    name: str
    version: str
    aliases: list[str]
    type: str
    size: int
    digest: str
    created_at: Time | None
    meta: dict[str, Json]
    made_by: list[str]
    used_by: list[str]


class ArtifactRow(ArtifactHead):
    files: int


class Artifact(ArtifactHead):
    files: list[ArtifactFile]


class ImportedRun(Answer):
    """The job that an imported run is, and how far its streams have come."""

    id: str
    attempt: int
    task: str
    is_new: bool
    streams: dict[str, int]


class BlobHave(Answer):
    have: int


class Timing(Answer):
    name: str
    attempt: int
    rank: int | None
    pid: int
    count: int
    mean_s: float
    std_s: float
    min_s: float
    max_s: float


class Checkpoint(Answer):
    time: Time
    attempt: int
    rank: int | None
    tags: list[str]


class Curve(Answer):
    time: list[Time]
    value: list[Number]


class Usage(Answer):
    level: int | None = None
    samples: list[dict[str, Json]] = []
    checkpoints: list[Checkpoint] = []
    windows: list[dict[str, Json]] = []
    last: UsageShort | None = None
    next: int | str | None = None
    curves: dict[str, Curve] | None = None


class UsageLine(Answer):
    label: str
    values: list[float | None]


class UsageChart(Answer):
    """`values` of each line stand beside `time`; null where nothing was measured."""

    name: str
    title: str
    unit: str
    stacked: bool
    lines: list[UsageLine]
    left_out: int


class UsageStacks(Answer):
    """Usage of one attempt, a line per rank, node or GPU."""

    attempt: int
    time: list[Time]
    charts: list[UsageChart]
    checkpoints: list[Checkpoint]


class Follow(Answer):
    """What is new of a job since a cursor. `progress` and `usage` are null while they are as before."""

    cursor: dict[str, Json]
    state: str
    lines: list[Line]
    events: list[JobEvent]
    metrics: dict[str, Number]
    records: list[LogRecord]
    progress: list[Progress] | None
    usage: UsageShort | None
    done: Job | None


class Watch(Answer):
    cursor: int
    states: dict[str, int]
    jobs: list[JobRow]


class Evidence(Answer):
    stream: str | None
    offset: int | None
    text: str
    line: int | None = None


class Finding(Answer):
    cause: str | None
    class_: str | None
    confidence: float
    task: str | None = None
    rank: int | None = None
    node: str | None = None
    attempt: int | None = None
    text: str | None = None
    evidence: list[Evidence] = []
    advice: str | list[str] | None = None
    retry: Json = None
    since: Time | None = None


class Ledger(Answer):
    """Where the time of a job or of an experiment went, in seconds."""

    id: str
    jobs: int
    total_s: float
    parts: dict[str, float]
    requests: list[str]


class Signs(Answer):
    """When a job that runs last gave a sign of life."""

    silent_s: float
    output_at: Time | None
    step_at: Time | None
    interval_s: float | None
    limit_s: float
    cpu_percent: float | None
    moving: str | None


class Why(Answer):
    """`hw why ID --json`: one verdict, the findings behind it, best first."""

    id: str
    state: str
    verdict: str | None
    findings: list[Finding]
    hypotheses: list[Finding] = []
    # {count, jobs, came_through}: the same failure in other jobs
    seen_before: dict[str, Json] | None = None
    since_ns: int | None = None
    since_s: float | None = None
    cluster: str | None = None
    engine: str | None = None
    signs: Signs | None = None
    waiting: dict[str, Json] | None = None
    needs: dict[str, Json] | None = None


class Stacks(Answer):
    """The stacks of all ranks of one moment, merged. Frames are newest first."""

    id: str
    time: Time | None
    how: str | None
    groups: list[stacks.Group]
    odd: list[int]
    missing: list[int]
    others: list[stacks.Group]
    missing_why: list[stacks.Missing]
    verdict: str | None
    split: bool
    ranks: list[int]
    took_s: float
    native: bool
    silent_tasks: list[str]
    tree: list[stacks.Node]


# -- clusters


class Resources(Answer):
    gpus: int | None
    cpus: float | None
    memory_bytes: int | None


class ClusterNode(Answer):
    name: str
    cpus: float | None
    memory_bytes: int | None
    gpus: int | None
    gpu_source: str | None
    state_word: str | None
    free_cpus: float | None
    free_memory_bytes: int | None
    free_gpus: int | None


class Cluster(Answer):
    name: str
    engine: str
    definition: dict[str, Json]
    reachable: bool
    error: str | None
    refusal: str | None
    total: Resources
    free: Resources
    fits_now: bool | None
    running: int
    waiting: int
    nodes: list[ClusterNode]
    queue: Json = None
    tray: Json = None


# -- the server itself


class MonitorAddress(Answer):
    listen: str | None
    addresses: list[str]
    pin: str | None
    container: bool
    error: str | None


class MonitorTarget(Answer):
    address: str
    jobs: int
    waiting_bytes: int
    state: str
    error: str | None
    since: Time | None


class LoopLag(Answer):
    """How late the event loop was: the worst of the last minute and since the start."""

    recent_s: float
    worst_s: float
    worst_at: Time | None


class ClockStep(Answer):
    at: Time | None
    step_s: float


class DamageNotice(Answer):
    time: Time | None
    text: str


class Server(Answer):
    pid: int
    address: str
    url: str | None
    version: str
    home: str
    started_at: Time | None
    role: str
    loop_lag: LoopLag
    notices: list[DamageNotice]
    clock_steps: list[ClockStep]
    restored: Json
    jobs: dict[str, int]
    agents: dict[str, Json] | None
    ways: dict[str, int]
    way_troubles: list[Json]
    monitor: MonitorAddress | None
    monitors: list[MonitorTarget]
    page: bool


class Stopped(Answer):
    pid: int


class Acknowledged(Answer):
    acknowledged: int


class LoginCode(Answer):
    code: str
    url: str
    expires_s: float


class Token(Answer):
    id: str
    name: str
    role: str
    created_at: Time | None
    revoked_at: Time | None


class NewToken(Answer):
    """The only time that the token itself is told."""

    id: str
    name: str
    role: str
    token: str


class Revoked(Answer):
    id: str


class Collected(Answer):
    jobs: int
    bytes: int
    ids: list[str]
    snapshots: int = 0
    folders: int = 0
    artifact_bytes: int = 0
    clusters: list[Json] = []


class Channel(Answer):
    channel: str
    to: str


class SettingsFile(Answer):
    path: str
    exists: bool


class Notice(Answer):
    time: Time
    kind: str
    id: str
    channel: str
    state: str
    sent_at: Time | None
    tries: int
    result: str | None


class Notify(Answer):
    channels: list[Channel]
    on: list[str]
    stall_s: float
    waited_s: float
    notices: list[Notice]
    files: list[SettingsFile]


class NotifyResult(Answer):
    channel: str
    to: str
    ok: bool
    detail: str


class NotifyTest(Answer):
    results: list[NotifyResult]
    files: list[SettingsFile]


# -- what agents and other servers get


class Command(msgspec.Struct):
    """One order for an agent; what else it needs stands beside these."""

    seq: int
    do: str


class Ingested(Answer):
    acks: dict[str, int]
    refused: dict[str, str]
    now_ns: int


class Poll(Answer):
    commands: list[Command]
    now_ns: int


class Registered(Answer):
    id: str
    token: str
    attempt: int
    task: str


class Guest(Answer):
    id: str
    stop: bool


class GuestPoll(Answer):
    commands: list[dict[str, Json]]
    again: list[str]


# -- the page


class PageWaiting(Answer):
    attempt: int | None = None
    next_at: Time | None = None
    after: list[str] | None = None
    ahead: int | None = None
    word: str | None = None


class PageProgress(Answer):
    msg: list[str]
    completed: Number
    total: Number | None
    rate: Number | None
    eta_s: Number | None
    state: str


class PageRow(Answer):
    """A row of the page's table; what is empty is left out."""

    id: str
    name: str
    state: str
    state_since: Time
    cluster: str
    engine: str
    submitted_at: Time
    command: str = ""
    experiment: str | None = None
    gpus: int = 0
    processes: int | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    parent: str | None = None
    tags: list[str] = []
    health: Health | None = None
    star: bool = False
    bug: bool = False
    description: str | None = None
    cause: Cause | None = None
    progress: PageProgress | None = None
    waiting: PageWaiting | None = None
    heard_at: Time | None = None
    metrics: dict[str, Number] = {}
    config: dict[str, Json] = {}
    array: str | None = None
    array_index: int | None = None


class PageTable(Answer):
    """`ids`: the rows of the window, in order; `rows`: those that the page did not have."""

    total: int
    ids: list[str]
    rows: dict[str, PageRow]
    checksums: dict[str, int]
    sparks: dict[str, list[float | None]]
    states: dict[str, int]


class PagePoints(Answer):
    """New points of one series; `from_`: how many were logged before them."""

    key: int
    from_: int
    step: list[int]
    time: list[float]
    value: list[Number]


class PageJob(Answer):
    """`parts`: fields of `Job` that have changed; `bytes`: how much it has printed."""

    id: str
    parts: dict[str, Json]
    checksums: dict[str, int]
    points: list[PagePoints]
    bytes: int


class PageNews(Answer):
    position: str
    table: PageTable | None
    job: PageJob | None


class PageCluster(Answer):
    name: str
    engine: str
    jobs: dict[str, int]


class PageExperiment(Answer):
    name: str
    jobs: int


class PageSummary(Answer):
    states: dict[str, int]
    clusters: list[PageCluster]
    experiments: list[PageExperiment]
    time: Time


class PageSpread(Answer):
    """Of the last values of a group's jobs."""

    mean: float
    deviation: float
    min: float
    max: float
    jobs: int


class PageGroup(Answer):
    """`values` stand beside the answer's `by`; `newest` is the id of its newest job."""

    values: list[Json]
    jobs: int
    states: dict[str, int]
    newest: str
    metrics: dict[str, PageSpread]


class PageGroups(Answer):
    """`cut`: only the newest jobs were looked at; `left_out`: groups that are not told."""

    by: list[str]
    groups: list[PageGroup]
    total: int
    cut: bool
    left_out: int


class PageLayout(Answer):
    """What somebody arranged on the page."""

    name: str
    data: dict[str, Json]
    updated_at: Time


class PageColumns(Answer):
    config: list[str]
    metrics: list[str]


class MetricName(Answer):
    name: str
    points: int
    ranks: int
    attempts: int


class NumberedLine(Answer):
    n: int
    time: Time | None
    rank: int | None
    stream: str
    offset: int
    text: str


class NumberedLines(Answer):
    """`bytes`: of all that was chosen, not only of these lines."""

    total: int
    first: int
    lines: list[NumberedLine]
    bytes: int


class FoundLines(Answer):
    """`hits`: numbers of lines, rising; `total`: lines that were searched."""

    hits: list[int]
    more: bool
    timed_out: bool
    total: int
