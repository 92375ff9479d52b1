// Made by `make docs` from src/headway/server/contract.py; do not edit.

export interface Acknowledged {
  acknowledged: number;
}

export interface After {
  id: string;
  state: string | null;
}

export interface AgentPoll {
  task: TaskKey;
  wait_s?: number;
  done?: Array<number>;
  now_ns?: number | null;
  lag_bytes?: number | null;
  trouble?: string;
}

export interface ArraysJob {
  index: number;
  spec?: Record<string, unknown>;
  env?: Record<string, string>;
}

/** An empty object. */
export interface ArraysNothing {
}

export interface ArraysResubmit {
  uuid: string;
  env: Record<string, string>;
  spec?: Record<string, unknown>;
  states?: Array<string>;
}

export interface ArraysSubmit {
  uuid: string;
  spec: Record<string, unknown>;
  jobs: Array<ArraysJob>;
  env?: Record<string, string>;
  find_program?: boolean;
}

export interface Artifact {
  name: string;
  version: string;
  aliases: Array<string>;
  type: string;
  size: number;
  digest: string;
  created_at: string | null;
  meta: Record<string, unknown>;
  made_by: Array<string>;
  used_by: Array<string>;
  files: Array<ArtifactFile>;
}

export interface ArtifactFile {
  path: string;
  size: number;
  digest: string;
  mode: number;
  lost?: boolean;
  changed?: boolean;
}

export interface ArtifactRow {
  name: string;
  version: string;
  aliases: Array<string>;
  type: string;
  size: number;
  digest: string;
  created_at: string | null;
  meta: Record<string, unknown>;
  made_by: Array<string>;
  used_by: Array<string>;
  files: number;
}

export interface ArtifactsAsked {
  name?: string | null;
  type?: string | null;
  job?: string | null;
}

export interface AskedAll {
  cursor?: number | null;
  wait_s?: number;
  limit?: number;
}

export interface AskedFind {
  attempt?: number | null;
  task?: string | null;
  rank?: number | null;
  stream?: "agent" | "stderr" | "stdout" | null;
  text?: string;
  regex?: boolean;
  case?: boolean;
  errors?: boolean;
  limit?: number;
}

export interface AskedLayouts {
  kind: "charts" | "view";
  name?: string | null;
}

export interface AskedLines {
  attempt?: number | null;
  task?: string | null;
  rank?: number | null;
  stream?: "agent" | "stderr" | "stdout" | null;
  first?: number;
  count?: number;
  tail?: boolean;
  at?: number | null;
  time_s?: number | null;
}

export interface AskedRecords {
  level?: string | null;
  rank?: number | null;
  grep?: string | null;
  after?: number;
  tail?: number | null;
  limit?: number;
}

export interface AskedStacks {
  by?: "gpu" | "node" | "rank";
  attempt?: number | null;
  points?: number;
}

export interface AskedUsage {
  level?: number | null;
  since?: string | null;
  until?: string | null;
  after?: number | null;
  points?: number | null;
}

export interface Attach {
  argv: Array<string> | null;
}

export interface Attempt {
  number: number;
  state: string;
  cause: Cause | null;
  exit_code: number | null;
  signal: number | null;
  engine_id: string | null;
  engine_word: string | null;
  retry: Record<string, unknown> | null;
  started_at: string | null;
  ended_at: string | null;
  tasks: Array<Task>;
}

export interface Blob {
  offset?: number;
  size?: number;
}

export interface BlobHave {
  have: number;
}

/** Why an attempt ended: a word of the failure taxonomy, its class, and one line for a person. */
export interface Cause {
  cause: string;
  class: string;
  text: string;
  rank?: number | null;
}

export interface Change {
  key: string;
  values: Array<unknown>;
}

export interface Channel {
  channel: string;
  to: string;
}

export interface ChartsAsked {
  jobs: Array<string>;
  names: Array<string>;
  x?: string;
  low?: number | null;
  high?: number | null;
  pixels?: number;
  rank?: number | null;
  joined?: boolean;
}

export interface Checkpoint {
  time: string;
  attempt: number;
  rank: number | null;
  tags: Array<string>;
}

export interface ClockStep {
  at: string | null;
  step_s: number;
}

export interface Cluster {
  name: string;
  engine: string;
  definition: Record<string, unknown>;
  reachable: boolean;
  error: string | null;
  refusal: string | null;
  total: Resources;
  free: Resources;
  fits_now: boolean | null;
  running: number;
  waiting: number;
  nodes: Array<ClusterNode>;
  queue?: unknown;
  tray?: unknown;
}

export interface ClusterNode {
  name: string;
  cpus: number | null;
  memory_bytes: number | null;
  gpus: number | null;
  gpu_source: string | null;
  state_word: string | null;
  free_cpus: number | null;
  free_memory_bytes: number | null;
  free_gpus: number | null;
}

export interface Collected {
  jobs: number;
  bytes: number;
  ids: Array<string>;
  snapshots?: number;
  folders?: number;
  artifact_bytes?: number;
  clusters?: Array<unknown>;
}

export interface ColumnsAsked {
  query?: string;
}

/** One order for an agent; what else it needs stands beside these. */
export interface Command {
  seq: number;
  do: string;
}

export interface CompareTable {
  jobs: Array<ComparedJob>;
  equal: Record<string, unknown>;
  differs: Array<string>;
  metrics: Array<string>;
  directions: Record<string, "max" | "min" | null>;
  defined: Array<string>;
  metrics_left_out: number;
  jobs_left_out: number;
}

/** Which jobs, by id or by a selection, and which metrics. */
export interface Compare_tableAsked {
  ids?: Array<string>;
  state?: Array<string>;
  cluster?: string | null;
  experiment?: string | null;
  since?: number | null;
  match?: string | null;
  where?: string | null;
  name?: Array<string>;
  want?: "max" | "min" | null;
  metrics_max?: number;
  limit?: number;
}

export interface ComparedJob {
  id: string;
  name: string;
  state: string;
  config: Record<string, unknown>;
  metrics: Record<string, ComparedMetric>;
  experiment: string | null;
  tags: Array<string>;
  submitted_at: string | null;
  elapsed_s: number | null;
}

/** `best` and `step` are of the extreme that is wanted; where nobody says which, `best` is null and `step` the last one. Numbers that JSON cannot hold are text. */
export interface ComparedMetric {
  last: number | string;
  min: number | null;
  max: number | null;
  best: number | null;
  step: number;
}

export interface Create {
  name: string;
  role?: string;
}

export interface Cursor {
  attempt?: number;
  at?: Record<string, number>;
  held?: Record<string, Array<never>>;
  event?: number;
  state?: string;
  metrics?: number;
  metrics_ms?: number;
  record?: number | null;
  progress?: number;
  usage?: number;
  watch_ms?: number;
}

export interface Curve {
  time: Array<string>;
  value: Array<number | string>;
}

export interface DamageNotice {
  time: string | null;
  text: string;
}

export interface DiffAsked {
  ids: Array<string>;
  metric?: string | null;
  want?: "max" | "min" | null;
}

export interface Difference {
  ids: Array<string>;
  jobs: Array<Side>;
  outcome: Outcome;
  likely: Array<Likely>;
  config: Array<Change>;
  command: Array<Change>;
  packages: Array<Change>;
  environment: Array<Change>;
  hardware: Array<Change>;
  data: Array<Change>;
  node: Array<Change>;
  code_differs: boolean | null;
  equal: Array<string>;
}

/** Nothing to say beyond the status. */
export interface Empty {
}

export interface Entry {
  path: string;
  digest: string;
  size: number;
  mode?: number;
}

/** What every route answers when it cannot do what it was asked for. */
export interface ErrorAnswer {
  error: ErrorBody;
}

export interface ErrorBody {
  code: string;
  message: string;
  hint: string;
  candidates: Array<string>;
}

export interface Evidence {
  stream: string | null;
  offset: number | null;
  text: string;
  line?: number | null;
}

export interface Export {
  table: string;
  jobs?: Compare_tableAsked;
}

export interface FailedElement {
  id: string;
  index: number;
  cause: Cause | null;
}

export interface File {
  path: string;
  offset?: number;
}

export interface Filter {
  state?: Array<string>;
  cluster?: string | null;
  experiment?: string | null;
  since?: number | null;
  match?: string | null;
  where?: string | null;
  limit?: number;
  array?: string | null;
  fold?: boolean;
  brief?: boolean;
  older?: number | null;
  tag?: Array<string>;
  config?: boolean;
  usage?: boolean;
}

export interface Finding {
  cause: string | null;
  class: string | null;
  confidence: number;
  task?: string | null;
  rank?: number | null;
  node?: string | null;
  attempt?: number | null;
  text?: string | null;
  evidence?: Array<Evidence>;
  advice?: string | Array<string> | null;
  retry?: unknown;
  since?: string | null;
}

/** What is new of a job since a cursor. `progress` and `usage` are null while they are as before. */
export interface Follow {
  cursor: Record<string, unknown>;
  state: string;
  lines: Array<Line>;
  events: Array<JobEvent>;
  metrics: Record<string, number | string>;
  records: Array<LogRecord>;
  progress: Array<Progress> | null;
  usage: UsageShort | null;
  done: Job | null;
}

export interface FollowAsked {
  cursor?: Cursor | null;
  tail?: number | null;
  wait_s?: number;
  records?: boolean;
  lines?: boolean;
}

/** What a word means that a person typed; `said`: how it was chosen, where not by its id. */
export interface Found {
  id: string;
  uuid: string;
  kind: string;
  state: string;
  said: string;
}

/** `hits`: numbers of lines, rising; `total`: lines that were searched. */
export interface FoundLines {
  hits: Array<number>;
  more: boolean;
  timed_out: boolean;
  total: number;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
}

export interface GcAsked {
  older_than_days?: number | null;
  dry_run?: boolean;
  clusters?: Record<string, Record<string, unknown>>;
}

/** Ranks with the same stack. */
export interface Group {
  ranks: Array<number>;
  thread: string;
  frames: Array<Frame>;
  waits?: string | null;
  kind?: string | null;
  at?: string | null;
  source?: string | null;
  tasks?: Array<string>;
  helper?: string | null;
  pids?: Array<number>;
}

export interface GroupsAsked {
  by: Array<string>;
  query?: string;
  metrics?: Array<string>;
}

export interface Guest {
  id: string;
  stop: boolean;
}

export interface GuestPoll {
  jobs: Array<string>;
  done?: Array<number>;
  wait_s?: number;
}

/** What is wrong with a job that runs: a hang, or slowness. */
export interface Health {
  kind: string;
  cause: string;
  class: string;
  text: string;
  rank: number | null;
  since: string;
}

export interface Hold {
  since: string | null;
  until: string | null;
  gpus: number;
  gpu_hours: number;
}

export interface Importance {
  metric: string;
  direction: "max" | "min";
  jobs: number;
  keys: Array<KeyImportance>;
  equal: Array<string>;
}

export interface Imported {
  uuid: string;
  name: string;
  source: string;
  started_ns: number;
  ended_ns: number;
  state?: string;
  experiment?: string | null;
  command?: Array<string>;
  cwd?: string;
  user?: string;
  host?: string;
  tags?: Array<string>;
  exit_code?: number | null;
}

/** The job that an imported run is, and how far its streams have come. */
export interface ImportedRun {
  id: string;
  attempt: number;
  task: string;
  is_new: boolean;
  streams: Record<string, number>;
}

export interface InfluxAsked {
  db?: string;
  bucket?: string;
  org?: string;
  precision?: string;
  u?: string;
  p?: string;
  rp?: string;
  consistency?: string;
}

export interface Ingested {
  acks: Record<string, number>;
  refused: Record<string, string>;
  now_ns: number;
}

/** `hw q ID --json`. */
export interface Job {
  id: string;
  uuid: string;
  name: string;
  experiment: string | null;
  state: string;
  state_since: string | null;
  cluster: string;
  engine: string;
  engine_id: string | null;
  engine_url: string | null;
  attach: string | Array<string> | null;
  command: Array<string>;
  cwd: string;
  code: string | null;
  gpus: number;
  processes: number;
  multi_process: boolean;
  submitted_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  elapsed_s: number | null;
  exit_code: number | null;
  signal: number | null;
  parent: string | null;
  tags: Array<string>;
  star: boolean;
  bug: boolean;
  description: string;
  host: string | null;
  guest_of: string | null;
  monitor: string | null;
  array: string | null;
  array_index: number | null;
  parameters: Record<string, unknown>;
  smoke: boolean;
  cause: Cause | null;
  health: Health | null;
  priority: number;
  needs: Needs;
  retries: Retries;
  hold: Hold | null;
  reserved: boolean;
  after: Array<After>;
  output_dir: string;
  outputs: string | null;
  config: unknown;
  progress: Array<Progress>;
  usage: UsageShort | null;
  metrics: Record<string, number | string>;
  page: string | null;
  image: string | null;
  roles: Array<Record<string, unknown>>;
  folders: Array<Record<string, unknown>>;
  definition: Record<string, unknown>;
  attempts: Array<Attempt>;
}

/** Many jobs that were submitted as one. */
export interface JobArray {
  id: string;
  uuid: string;
  name: string;
  is_array: boolean;
  jobs: number;
  states: Record<string, number>;
  state: string;
  experiment: string | null;
  cluster: string;
  parent: string | null;
  submitted_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  failed: Array<FailedElement>;
  stopped?: number | null;
}

export interface JobAsked {
  ref: string;
  known?: Record<string, number>;
  points?: Record<string, number>;
  bytes?: number;
}

export interface JobEvent {
  seq: number;
  time: string;
  type: string;
  attempt: number | null;
  rank: number | null;
  data: unknown;
}

/** A row of `hw ls --json`. With `brief` what is empty is left out; an array is one row, too. */
export interface JobRow {
  id: string;
  name: string;
  state: string;
  uuid?: string | null;
  experiment?: string | null;
  state_since?: string | null;
  cluster?: string | null;
  engine?: string | null;
  engine_id?: string | null;
  engine_url?: string | null;
  attach?: string | Array<string> | null;
  command?: Array<string>;
  cwd?: string | null;
  code?: string | null;
  gpus?: number;
  processes?: number;
  multi_process?: boolean;
  submitted_at?: string | null;
  started_at?: string | null;
  ended_at?: string | null;
  elapsed_s?: number | null;
  exit_code?: number | null;
  signal?: number | null;
  parent?: string | null;
  tags?: Array<string>;
  star?: boolean;
  bug?: boolean;
  description?: string;
  host?: string | null;
  guest_of?: string | null;
  monitor?: string | null;
  array?: string | null;
  array_index?: number | null;
  parameters?: Record<string, unknown>;
  config?: Record<string, unknown>;
  smoke?: boolean;
  health?: Health | null;
  cause?: Cause | null;
  progress?: Array<Progress>;
  metrics?: Record<string, number | string>;
  page?: string | null;
  image?: string | null;
  definition?: Record<string, unknown>;
  waiting?: Waiting | null;
  usage?: UsageShort | null;
  nodes?: Array<string>;
  heard_at?: string | null;
  is_array?: boolean;
  jobs?: number | null;
  states?: Record<string, number> | null;
}

export interface JobsAttach {
  rank?: number | null;
  task?: string | null;
}

/** An empty object. */
export interface JobsNothing {
}

export interface JobsPlan {
  spec: Record<string, unknown>;
  env?: Record<string, string>;
}

export interface JobsResubmit {
  uuid: string;
  spec?: Record<string, unknown>;
  env?: Record<string, string> | null;
}

export interface JobsSubmit {
  uuid: string;
  spec: Record<string, unknown>;
  env?: Record<string, string>;
  find_program?: boolean;
}

export interface KeptLayout {
  kind: "charts" | "view";
  name: string;
  data: Record<string, unknown> | null;
}

/** `share` of all the variance, from `low` to `high`; `rest`: its share of what the keys before it leave; `chance`: as much by accident; `trend`: the rank correlation with a number, null for words; `best`: the value with the best mean. */
export interface KeyImportance {
  key: string;
  share: number;
  low: number;
  high: number;
  rest: number;
  chance: number;
  values: number;
  trend: number | null;
  best: unknown;
}

/** Where the time of a job or of an experiment went, in seconds. */
export interface Ledger {
  id: string;
  jobs: number;
  total_s: number;
  parts: Record<string, number>;
  requests: Array<string>;
}

export interface LedgerAsked {
  experiment: string;
}

export interface Likely {
  what: string;
  key: string;
  values: Array<unknown>;
  why: string;
  weight: number;
}

export interface Line {
  time: string | null;
  rank: number;
  task: string;
  attempt: number;
  stream: string;
  text: string;
  open?: boolean;
}

export interface Lines {
  lines: Array<Line>;
  more: boolean;
  cursor: string;
  timed_out?: boolean;
}

export interface LiveAsked {
  position?: string | null;
  wait_s?: number;
  table?: TableAsked | null;
  job?: JobAsked | null;
}

/** A record of `logging`. */
export interface LogRecord {
  seq: number;
  time: string;
  attempt: number;
  rank: number | null;
  level: string;
  levelno: number;
  logger: string;
  text: string;
  printed: boolean;
  pid?: number | null;
  process?: string | null;
  thread?: string | null;
  file?: string | null;
  line?: number | null;
  func?: string | null;
  cut?: boolean;
}

export interface Login {
  code: string;
}

export interface LoginCode {
  code: string;
  url: string;
  expires_s: number;
}

export interface LogsAsked {
  attempt?: number | null;
  task?: string | null;
  rank?: number | null;
  stream?: "agent" | "stderr" | "stdout" | null;
  tail?: number | null;
  bytes?: number | null;
  offset?: number | null;
  grep?: string | null;
  cursor?: string | null;
  format?: "lines" | "raw";
}

/** How late the event loop was: the worst of the last minute and since the start. */
export interface LoopLag {
  recent_s: number;
  worst_s: number;
  worst_at: string | null;
}

/** What people say of a job afterwards; what is not there stays as it is. */
export interface Marks {
  tags?: Array<string>;
  star?: boolean;
  bug?: boolean;
  description?: string;
  name?: string;
}

/** An image, a table and the like; `number` names it for its bytes. */
export interface Media {
  number: number;
  name: string;
  step: number;
  time: string | null;
  attempt: number;
  rank: number | null;
  kind: string;
  mime: string;
  size: number;
  meta: Record<string, unknown>;
}

export interface MediaAsked {
  name?: string | null;
  limit?: number | null;
}

export interface MetricDefinition {
  x: string | null;
  goal: string | null;
  summary: Array<string>;
}

export interface MetricName {
  name: string;
  points: number;
  ranks: number;
  attempts: number;
}

export interface MetricsAsked {
  name?: Array<string>;
  rank?: number | null;
  points?: number | null;
  joined?: boolean;
}

/** A rank without a stack, and what the kernel says of it. */
export interface Missing {
  rank: number;
  pid: number;
  why: string;
  name?: string | null;
  state?: string | null;
  wchan?: string | null;
  task?: string | null;
  silent?: boolean;
}

export interface MonitorAddress {
  listen: string | null;
  addresses: Array<string>;
  pin: string | null;
  container: boolean;
  error: string | null;
}

export interface MonitorTarget {
  address: string;
  jobs: number;
  waiting_bytes: number;
  state: string;
  error: string | null;
  since: string | null;
}

/** What was asked for; null where nothing was. */
export interface Needs {
  cpus: number | null;
  memory_bytes: number | null;
  max_duration_s: number | null;
}

/** The only time that the token itself is told. */
export interface NewToken {
  id: string;
  name: string;
  role: string;
  token: string;
}

/** A call that these ranks have in common; `below` are the calls that it made. */
export interface Node {
  function: string;
  file: string;
  line: number;
  ranks: string;
  below?: Array<Node>;
  waits?: string | null;
}

export interface Notice {
  time: string;
  kind: string;
  id: string;
  channel: string;
  state: string;
  sent_at: string | null;
  tries: number;
  result: string | null;
}

export interface Notify {
  channels: Array<Channel>;
  on: Array<string>;
  stall_s: number;
  waited_s: number;
  notices: Array<Notice>;
  files: Array<SettingsFile>;
}

export interface NotifyResult {
  channel: string;
  to: string;
  ok: boolean;
  detail: string;
}

export interface NotifyTest {
  results: Array<NotifyResult>;
  files: Array<SettingsFile>;
}

export interface NumberedLine {
  n: number;
  time: string | null;
  rank: number | null;
  stream: string;
  offset: number;
  text: string;
}

/** `bytes`: of all that was chosen, not only of these lines. */
export interface NumberedLines {
  total: number;
  first: number;
  lines: Array<NumberedLine>;
  bytes: number;
}

export interface One {
  number: number;
}

export interface Outcome {
  metric: string | null;
  direction: "max" | "min" | null;
  values: Array<number | null>;
  states: Array<string>;
  siblings: number;
}

export interface PageCluster {
  name: string;
  engine: string;
  jobs: Record<string, number>;
}

export interface PageColumns {
  config: Array<string>;
  metrics: Array<string>;
}

export interface PageExperiment {
  name: string;
  jobs: number;
}

/** `values` stand beside the answer's `by`; `newest` is the id of its newest job. */
export interface PageGroup {
  values: Array<unknown>;
  jobs: number;
  states: Record<string, number>;
  newest: string;
  metrics: Record<string, PageSpread>;
}

/** `cut`: only the newest jobs were looked at; `left_out`: groups that are not told. */
export interface PageGroups {
  by: Array<string>;
  groups: Array<PageGroup>;
  total: number;
  cut: boolean;
  left_out: number;
}

/** `parts`: fields of `Job` that have changed; `bytes`: how much it has printed. */
export interface PageJob {
  id: string;
  parts: Record<string, unknown>;
  checksums: Record<string, number>;
  points: Array<PagePoints>;
  bytes: number;
}

/** What somebody arranged on the page. */
export interface PageLayout {
  name: string;
  data: Record<string, unknown>;
  updated_at: string;
}

export interface PageNews {
  position: string;
  table: PageTable | null;
  job: PageJob | null;
}

/** New points of one series; `from_`: how many were logged before them. */
export interface PagePoints {
  key: number;
  from: number;
  step: Array<number>;
  time: Array<number>;
  value: Array<number | string>;
}

export interface PageProgress {
  msg: Array<string>;
  completed: number | string;
  total: number | string | null;
  rate: number | string | null;
  eta_s: number | string | null;
  state: string;
}

/** A row of the page's table; what is empty is left out. */
export interface PageRow {
  id: string;
  name: string;
  state: string;
  state_since: string;
  cluster: string;
  engine: string;
  submitted_at: string;
  command?: string;
  experiment?: string | null;
  gpus?: number;
  processes?: number | null;
  started_at?: string | null;
  ended_at?: string | null;
  elapsed_s?: number | null;
  exit_code?: number | null;
  signal?: number | null;
  parent?: string | null;
  tags?: Array<string>;
  health?: Health | null;
  star?: boolean;
  bug?: boolean;
  description?: string | null;
  cause?: Cause | null;
  progress?: PageProgress | null;
  waiting?: PageWaiting | null;
  heard_at?: string | null;
  metrics?: Record<string, number | string>;
  config?: Record<string, unknown>;
  array?: string | null;
  array_index?: number | null;
}

/** Of the last values of a group's jobs. */
export interface PageSpread {
  mean: number;
  deviation: number;
  min: number;
  max: number;
  jobs: number;
}

export interface PageSummary {
  states: Record<string, number>;
  clusters: Array<PageCluster>;
  experiments: Array<PageExperiment>;
  time: string;
}

/** `ids`: the rows of the window, in order; `rows`: those that the page did not have. */
export interface PageTable {
  total: number;
  ids: Array<string>;
  rows: Record<string, PageRow>;
  checksums: Record<string, number>;
  sparks: Record<string, Array<number | null>>;
  states: Record<string, number>;
}

export interface PageWaiting {
  attempt?: number | null;
  next_at?: string | null;
  after?: Array<string> | null;
  ahead?: number | null;
  word?: string | null;
}

/** Exactly what the engine would get. */
export interface Plan {
  text: string;
  plan: Record<string, unknown>;
  gpus: number;
}

export interface Poll {
  commands: Array<Command>;
  now_ns: number;
}

export interface Process {
  rank: number;
  local_rank: number | null;
  pid: number | null;
  state: string;
  exit_code: number | null;
  signal: number | null;
  reason: string | null;
  started_at: string | null;
  ended_at: string | null;
  exception: RaisedException | null;
  logs: Record<string, string | null>;
}

export interface Progress {
  msg: Array<string>;
  completed: number | string;
  total: number | string | null;
  rate: number | string | null;
  eta_s: number | string | null;
  state: string;
  rank: number | null;
  source: string;
  started_at: string | null;
  updated_at: string | null;
}

export interface Provenance {
  git?: Record<string, unknown> | null;
  snapshot?: Record<string, unknown> | string | null;
  python?: string | null;
  executable?: string | null;
  packages?: Record<string, string> | null;
  user?: string | null;
  host?: string | null;
  platform?: string | null;
  command?: Array<string> | null;
}

export interface Query {
  query: string;
  jobs?: Compare_tableAsked;
}

export interface RaisedException {
  where: string;
  exc_type: string;
  message: string;
  traceback: string;
  file?: string | null;
  line?: number | null;
  source?: string | null;
  thread?: string | null;
  time_ns?: number | null;
}

export interface Records {
  records: Array<LogRecord>;
  after: number;
  more: boolean;
  timed_out: boolean;
}

export interface Reference {
  ref: string;
}

export interface Registered {
  id: string;
  token: string;
  attempt: number;
  task: string;
}

export interface Resources {
  gpus: number | null;
  cpus: number | null;
  memory_bytes: number | null;
}

export interface Retries {
  total: number;
  counted: number;
  max: number;
  next_at: string | null;
  text: string | null;
}

export interface Revoked {
  id: string;
}

/** The points of one rank and attempt. */
export interface Series {
  rank: number;
  attempt: number;
  step: Array<number | null>;
  time: Array<string>;
  value: Array<number | string>;
}

export interface Server {
  pid: number;
  address: string;
  url: string | null;
  version: string;
  home: string;
  started_at: string | null;
  role: string;
  loop_lag: LoopLag;
  notices: Array<DamageNotice>;
  clock_steps: Array<ClockStep>;
  restored: unknown;
  jobs: Record<string, number>;
  agents: Record<string, unknown> | null;
  ways: Record<string, number>;
  way_troubles: Array<unknown>;
  monitor: MonitorAddress | null;
  monitors: Array<MonitorTarget>;
  page: boolean;
}

export interface ServerLoginCode {
  role?: string;
}

/** An empty object. */
export interface ServerNothing {
}

export interface SettingsFile {
  path: string;
  exists: boolean;
}

/** One of the jobs. `code` is what the command line makes files of. */
export interface Side {
  id: string;
  name: string;
  state: string;
  cause: string | null;
  submitted_at: string | null;
  elapsed_s: number | null;
  value: number | null;
  step: number | null;
  cwd: string;
  snapshot: string | null;
  commit: string | null;
  patch: string;
}

export interface Signal {
  signal: number;
}

/** When a job that runs last gave a sign of life. */
export interface Signs {
  silent_s: number;
  output_at: string | null;
  step_at: string | null;
  interval_s: number | null;
  limit_s: number;
  cpu_percent: number | null;
  moving: string | null;
}

export interface Spread {
  min: number;
  min_rank: number;
  max: number;
  max_rank: number;
}

/** `cut`: there are more rows than one answer holds. */
export interface SqlAnswer {
  columns: Array<string>;
  rows: Array<Array<unknown>>;
  cut: boolean;
}

/** The stacks of all ranks of one moment, merged. Frames are newest first. */
export interface Stacks {
  id: string;
  time: string | null;
  how: string | null;
  groups: Array<Group>;
  odd: Array<number>;
  missing: Array<number>;
  others: Array<Group>;
  missing_why: Array<Missing>;
  verdict: string | null;
  split: boolean;
  ranks: Array<number>;
  took_s: number;
  native: boolean;
  silent_tasks: Array<string>;
  tree: Array<Node>;
}

export interface StacksAsked {
  native?: boolean;
}

export interface Stopped {
  pid: number;
}

export interface Stream {
  task: string;
  attempt: number;
  name: string;
  kind: string;
  rank: number | null;
  position: number;
  path: string | null;
}

export interface Survey {
  clusters: Record<string, Record<string, unknown>>;
  spec?: Record<string, unknown> | null;
}

export interface TableAsked {
  query?: string;
  sort?: string;
  offset?: number;
  limit?: number;
  config?: Array<string>;
  metrics?: Array<string>;
  spark?: string | null;
  total?: number;
  known?: Record<string, number>;
}

export interface Task {
  name: string;
  node: string | null;
  state: string;
  heard_at: string | null;
  processes: Array<Process>;
  way?: string | null;
  way_trouble?: string | null;
}

/** Names one task of one attempt, everywhere. */
export interface TaskKey {
  uuid: string;
  attempt: number;
  task: string;
}

export interface Timing {
  name: string;
  attempt: number;
  rank: number | null;
  pid: number;
  count: number;
  mean_s: number;
  std_s: number;
  min_s: number;
  max_s: number;
}

export interface Token {
  id: string;
  name: string;
  role: string;
  created_at: string | null;
  revoked_at: string | null;
}

/** What a program said of its metrics and of its outcome. */
export interface Tracked {
  definitions: Record<string, MetricDefinition>;
  summary: Record<string, unknown>;
  data: Array<Record<string, unknown>>;
}

export interface Usage {
  level?: number | null;
  samples?: Array<Record<string, unknown>>;
  checkpoints?: Array<Checkpoint>;
  windows?: Array<Record<string, unknown>>;
  last?: UsageShort | null;
  next?: number | string | null;
  curves?: Record<string, Curve> | null;
}

/** `values` of each line stand beside `time`; null where nothing was measured. */
export interface UsageChart {
  name: string;
  title: string;
  unit: string;
  stacked: boolean;
  lines: Array<UsageLine>;
  left_out: number;
}

export interface UsageLine {
  label: string;
  values: Array<number | null>;
}

/** The last sample of a running job, or means and peak of an ended one. */
export interface UsageShort {
  time: string;
  ranks: number;
  gpus: number;
  cpu_percent: number | null;
  memory_bytes: number | null;
  gpu_percent: number | null;
  gpu_memory_bytes: number | null;
  peak_memory_bytes: number | null;
  peak_rank: number | null;
  spread: Record<string, Spread>;
}

/** Usage of one attempt, a line per rank, node or GPU. */
export interface UsageStacks {
  attempt: number;
  time: Array<string>;
  charts: Array<UsageChart>;
  checkpoints: Array<Checkpoint>;
}

export interface Version {
  name: string;
  files: Array<Entry>;
  type?: string;
  aliases?: Array<string>;
  meta?: Record<string, unknown>;
}

/** What a job waits for, as lists tell it. */
export interface Waiting {
  attempt: number;
  next_at: string | null;
  after: Array<string>;
  ahead: number | null;
  word: string | null;
}

export interface Watch {
  cursor: number;
  states: Record<string, number>;
  jobs: Array<JobRow>;
}

/** `hw why ID --json`: one verdict, the findings behind it, best first. */
export interface Why {
  id: string;
  state: string;
  verdict: string | null;
  findings: Array<Finding>;
  hypotheses?: Array<Finding>;
  seen_before?: Record<string, unknown> | null;
  since_ns?: number | null;
  since_s?: number | null;
  cluster?: string | null;
  engine?: string | null;
  signs?: Signs | null;
  waiting?: Record<string, unknown> | null;
  needs?: Record<string, unknown> | null;
}
