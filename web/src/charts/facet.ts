// Lines by what was set: which group a job belongs to, which panel it is drawn in, mean and spread of a group. All pure.

import type { Line } from "../api/charts";
import { plain } from "../lib/format";

export type Configs = ReadonlyMap<string, Record<string, unknown>>;

/** What a job has for a setting, as the legend says it. */
export function valueOf(configs: Configs, job: string, key: string): string {
  const own = configs.get(job)?.[key];
  return own === undefined ? "not set" : plain(own);
}

/** All values of a setting among these jobs: numbers by size, words by name. */
export function valuesOf(configs: Configs, jobs: string[], key: string): string[] {
  const found = [...new Set(jobs.map((job) => valueOf(configs, job, key)))];
  const numeric = (text: string): number => Number(text.replace("−", "-"));
  return found.sort((a, b) => (Number.isFinite(numeric(a)) && Number.isFinite(numeric(b)) ? numeric(a) - numeric(b) : a.localeCompare(b)));
}

export interface Panel {
  title: string;
  jobs: ReadonlySet<string>;
}

/** One panel per value of `column`, for each value of `row`; without either one panel with all jobs. */
export function panelsOf(configs: Configs, jobs: string[], row: string, column: string): { panels: Panel[]; columns: number } {
  const rows = row ? valuesOf(configs, jobs, row) : [null];
  const columns = column ? valuesOf(configs, jobs, column) : [null];
  const panels: Panel[] = [];
  for (const one of rows) {
    for (const other of columns) {
      const fits = jobs.filter((job) => (one === null || valueOf(configs, job, row) === one) && (other === null || valueOf(configs, job, column) === other));
      const title = [one === null ? "" : `${row} ${one}`, other === null ? "" : `${column} ${other}`].filter(Boolean).join(" · ");
      panels.push({ title, jobs: new Set(fits) });
    }
  }
  return { panels, columns: column ? columns.length : 0 };
}

export interface Spread {
  x: Float64Array;
  mean: Float64Array;
  low: Float64Array;
  high: Float64Array;
  lines: number;
}

const PLACES = 240;

/** Mean and standard deviation over lines, each read between its own points and never beyond its ends. */
export function spreadOf(lines: Pick<Line, "x" | "y">[]): Spread {
  const drawn = lines.filter((line) => line.x.length);
  const first = Math.min(...drawn.map((line) => line.x[0] as number));
  const last = Math.max(...drawn.map((line) => line.x[line.x.length - 1] as number));
  const places = drawn.length ? Math.min(PLACES, Math.max(2, ...drawn.map((line) => line.x.length))) : 0;
  const found: Spread = { x: new Float64Array(places), mean: new Float64Array(places), low: new Float64Array(places), high: new Float64Array(places), lines: drawn.length };
  const at = drawn.map(() => 0);
  for (let place = 0; place < places; place++) {
    const x = first + ((last - first) * place) / Math.max(1, places - 1);
    let sum = 0;
    let squares = 0;
    let count = 0;
    drawn.forEach((line, index) => {
      const y = between(line, x, at, index);
      if (!Number.isFinite(y)) return;
      sum += y;
      squares += y * y;
      count += 1;
    });
    const mean = count ? sum / count : NaN;
    const deviation = count > 1 ? Math.sqrt(Math.max(0, squares / count - mean * mean)) : 0;
    found.x[place] = x;
    found.mean[place] = mean;
    found.low[place] = mean - deviation;
    found.high[place] = mean + deviation;
  }
  return found;
}

/** The line at x; `at` remembers for each line how far it was read, since x only rises. */
function between(line: Pick<Line, "x" | "y">, x: number, at: number[], index: number): number {
  const { x: xs, y: ys } = line;
  if (x < (xs[0] as number) || x > (xs[xs.length - 1] as number)) return NaN;
  let place = at[index] as number;
  while (place + 1 < xs.length && (xs[place + 1] as number) < x) place += 1;
  at[index] = place;
  const low = xs[place] as number;
  const high = xs[Math.min(place + 1, xs.length - 1)] as number;
  const from = ys[place] as number;
  if (high <= low || x <= low) return from;
  return from + (((ys[place + 1] as number) - from) * (x - low)) / (high - low);
}

/** Lines of one job, attempt after attempt: what a restart threw away (steps that were done again) is apart. */
export function joined(x: Float64Array, nextStart: number | null): number {
  if (nextStart === null) return x.length;
  let kept = x.length;
  while (kept > 0 && (x[kept - 1] as number) >= nextStart) kept -= 1;
  return kept;
}
