// Answers of /api/compare and /api/diff, as far as the page shows them.

import type { State } from "../../api/types";

export interface ComparedMetric {
  last: number | string;
  min: number | null;
  max: number | null;
  best: number | null;
  step: number;
}

export interface ComparedJob {
  id: string;
  name: string;
  state: State;
  config: Record<string, unknown>;
  metrics: Record<string, ComparedMetric>;
  elapsed_s: number | null;
}

export interface Compared {
  jobs: ComparedJob[];
  equal: Record<string, unknown>;
  differs: string[];
  metrics: string[];
  directions: Record<string, "min" | "max" | null>;
  jobs_left_out: number;
}

export interface Importance {
  metric: string;
  jobs: number;
  keys: { key: string; share: number; chance: number | null }[];
}

export interface Change {
  key: string;
  values: unknown[];
}

export interface Difference {
  ids: string[];
  jobs: { id: string; commit: string | null; patch: string }[];
  likely: { what: string; key: string; values: unknown[]; why: string; weight: number }[];
  config: Change[];
  command: Change[];
  packages: Change[];
  environment: Change[];
  hardware: Change[];
  data: Change[];
  node: Change[];
  code_differs: boolean | null;
  equal: string[];
}
