// Answers of the server as the page reads them. The shapes come from contract.ts, which is generated from the server's own
// types; here only what is wider there than it can be gets its narrower type: states, numbers, JSON.

import type * as contract from "./contract";

export type {
  Cause, ComparedJob, ComparedMetric, Difference, FoundLines, Health, Importance, MetricName, Process, Stacks, Task, UsageStacks,
  Change, Node as StackNode, Group as StackGroup, Checkpoint, PageWaiting as Waiting, NumberedLine as LogLine, NumberedLines as LinesAnswer,
} from "./contract";

type Narrowed<Wide, Narrow> = Omit<Wide, keyof Narrow> & Narrow;

export type State =
  | "waiting" | "running" | "stopping" | "succeeded" | "failed" | "stopped" | "held" | "unknown";
export type StateCounts = Partial<Record<State, number>>;

/** Numbers that JSON cannot hold are strings. */
export type Num = number | "NaN" | "Infinity" | "-Infinity";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A bar of progress: of a row, or of a job. Only sums of many terabytes would be no numbers. */
export type Tracker = Narrowed<
  contract.PageProgress,
  { completed: number | null; total: number | null; rate: number | null; eta_s: number | null }
> & { rank?: number | null };

/** A row of the table; fields that are empty are left out. */
export type Row = Narrowed<
  contract.PageRow,
  { state: State; progress?: Tracker; metrics?: Record<string, Num>; config?: Record<string, Json> }
>;

export type Attempt = contract.Attempt;

export type Job = Narrowed<
  contract.Job,
  {
    state: State;
    submitted_at: string;
    after: { id: string; state: State | null }[];
    parameters: Record<string, Json> | null;
    config: Record<string, Json> | null;
    progress: Tracker[];
    metrics: Record<string, Num>;
    folders: { name?: string; [key: string]: Json | undefined }[];
    definition: Record<string, Json>;
  }
>;

export type TableAnswer = Narrowed<contract.PageTable, { rows: Record<string, Row>; states: StateCounts }>;
export type PointsNews = Narrowed<contract.PagePoints, { value: Num[] }>;
export type JobAnswer = Narrowed<contract.PageJob, { parts: Partial<Job>; points: PointsNews[] }>;
export type LiveAnswer = Narrowed<contract.PageNews, { table: TableAnswer | null; job: JobAnswer | null }>;
export type TableWish = Required<contract.TableAsked>;
export type JobWish = Required<contract.JobAsked>;

export type Summary = Narrowed<
  contract.PageSummary,
  { states: StateCounts; clusters: Narrowed<contract.PageCluster, { jobs: StateCounts }>[] }
>;

export type ServerInfo = Narrowed<contract.Server, { role: "read" | "operate" | "admin"; jobs: StateCounts }>;

export type Finding = contract.Finding;
export type Evidence = contract.Evidence;
export type Why = Narrowed<contract.Why, { waiting?: Record<string, Json> | null; needs?: Record<string, Json> | null }>;
export type JobEvent = Narrowed<contract.JobEvent, { data: Record<string, Json> }>;
