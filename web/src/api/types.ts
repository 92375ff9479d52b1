// Answers of the server as docs/reference/routes.md and the machine-readable contract describe them.

export type State =
  | "waiting" | "running" | "stopping" | "succeeded" | "failed" | "stopped" | "held" | "unknown";

/** Numbers that JSON cannot hold are strings. */
export type Num = number | "NaN" | "Infinity" | "-Infinity";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Cause {
  cause: string | null;
  class: string | null;
  text: string | null;
  rank?: number | null;
}

export interface Tracker {
  msg: string[];
  completed: number | null;
  total: number | null;
  rate: number | null;
  eta_s: number | null;
  state: string;
  rank?: number | null;
}

export interface Waiting {
  attempt?: number | null;
  next_at?: string | null;
  after?: string[] | null;
  ahead?: number | null;
  word?: string | null;
}

/** A row of the table; fields that are empty are left out. */
export interface Row {
  id: string;
  name: string;
  state: State;
  state_since: string;
  experiment?: string;
  cluster: string;
  engine: string;
  command?: string;
  gpus?: number;
  processes?: number;
  submitted_at: string;
  started_at?: string;
  ended_at?: string;
  elapsed_s?: number;
  exit_code?: number;
  signal?: number;
  parent?: string;
  tags?: string[];
  star?: boolean;
  bug?: boolean;
  description?: string;
  cause?: Cause;
  progress?: Tracker;
  waiting?: Waiting;
  heard_at?: string;
  metrics?: Record<string, Num>;
  config?: Record<string, Json>;
  array?: string;
  array_index?: number;
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
  exception: { type?: string; message?: string; text?: string } | null;
  logs: { stdout: string | null; stderr: string | null };
}

export interface Task {
  name: string;
  node: string | null;
  state: string;
  heard_at: string | null;
  processes: Process[];
}

export interface Attempt {
  number: number;
  state: string;
  cause: Cause | null;
  exit_code: number | null;
  signal: number | null;
  engine_id: string | null;
  engine_word: string | null;
  retry: { do: string; text: string | null; counted: boolean | null; wait_s: number | null; not_before: string | null } | null;
  started_at: string | null;
  ended_at: string | null;
  tasks: Task[];
}

export interface UsageNow {
  time: string;
  ranks: number;
  gpus: number;
  cpu_percent: number | null;
  memory_bytes: number | null;
  gpu_percent: number | null;
  gpu_memory_bytes: number | null;
  peak_memory_bytes: number | null;
  peak_rank: number | null;
}

export interface Job {
  id: string;
  uuid: string;
  name: string;
  experiment: string | null;
  state: State;
  state_since: string;
  cluster: string;
  engine: string;
  engine_id: string | null;
  engine_url: string | null;
  attach: string | null;
  command: string[];
  cwd: string | null;
  code: string | null;
  gpus: number;
  processes: number | null;
  submitted_at: string;
  started_at: string | null;
  ended_at: string | null;
  elapsed_s: number | null;
  exit_code: number | null;
  signal: number | null;
  parent: string | null;
  tags: string[];
  star?: boolean;
  bug?: boolean;
  description?: string | null;
  host: string | null;
  array: string | null;
  array_index: number | null;
  parameters: Record<string, Json> | null;
  cause: Cause | null;
  priority: number;
  retries: { total: number; counted: number; max: number; next_at: string | null; text: string | null };
  hold: { since: string; until: string; gpus: number; gpu_hours: number } | null;
  after: { id: string; state: State }[];
  output_dir: string;
  outputs: string | null;
  config: Record<string, Json> | null;
  progress: Tracker[];
  usage: UsageNow | null;
  metrics: Record<string, Num>;
  image: string | null;
  roles: Json[];
  folders: { name?: string; [key: string]: Json | undefined }[];
  definition: Record<string, Json>;
  attempts: Attempt[];
  page: string | null;
}

export interface MetricName {
  name: string;
  points: number;
  ranks: number;
  attempts: number;
}

export interface TableAnswer {
  total: number;
  ids: string[];
  rows: Record<string, Row>;
  checksums: Record<string, number>;
  sparks: Record<string, (number | null)[]>;
  states: Partial<Record<State, number>>;
}

export interface PointsNews {
  key: number;
  from: number;
  step: number[];
  time: number[];
  value: Num[];
}

export interface JobAnswer {
  id: string;
  parts: Partial<Job>;
  checksums: Record<string, number>;
  points: PointsNews[];
  bytes: number;
}

export interface LiveAnswer {
  position: string;
  table: TableAnswer | null;
  job: JobAnswer | null;
}

export interface Summary {
  states: Partial<Record<State, number>>;
  clusters: { name: string; engine: string; jobs: Partial<Record<State, number>> }[];
  experiments: { name: string; jobs: number }[];
  time: string;
}

export interface ServerInfo {
  version: string;
  started_at: string;
  home: string;
  role: "read" | "operate" | "admin";
  jobs: Partial<Record<State, number>>;
}

export interface Evidence {
  stream?: string | null;
  offset?: number | null;
  line?: number | null;
  rank?: number | null;
  text: string;
}

export interface Finding {
  cause: string | null;
  class: string | null;
  confidence: number | null;
  task: string | null;
  rank: number | null;
  node?: string | null;
  attempt?: number;
  text?: string | null;
  evidence: Evidence[];
  advice: string | string[] | null;
  retry: Json;
}

export interface Why {
  id: string;
  state: State;
  since_s: number;
  cluster: string;
  engine: string;
  verdict: string | null;
  findings: Finding[];
  hypotheses?: Finding[];
  waiting: Record<string, Json> | null;
  needs: Record<string, Json>;
}

export interface JobEvent {
  seq: number;
  time: string;
  type: string;
  attempt: number | null;
  rank: number | null;
  data: Record<string, Json>;
}

export interface LogLine {
  n: number;
  time: string | null;
  rank: number | null;
  stream: string;
  text: string;
  offset: number;
}

export interface LinesAnswer {
  total: number;
  first: number;
  lines: LogLine[];
  bytes: number;
  whole: boolean;
}
