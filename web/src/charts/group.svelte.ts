// Charts that belong together: one x-axis, one window of it, one cursor, one legend, one request for all of them.

import { decodeLines, type Line } from "../api/charts";
import { ApiError, postBinary } from "../api/client";
import type { JobTopic } from "../api/live.svelte";
import type { PointsNews } from "../api/types";
import { jobColour, lineColour } from "../lib/colour";
import { asNumber, suffix } from "../lib/format";
import { panelsOf, valueOf, valuesOf, type Configs, type Panel } from "./facet";

const GATHER_MS = 16;
const NAMES_AT_ONCE = 24;
const PIXELS = 700;

export class ChartData {
  lines = $state.raw<Line[] | null>(null);
  /** Rises with every change of the points, also of those that are appended in place. */
  version = $state(0);
  error = $state<string>("");
  users = 0;
  key = "";
}

export interface Range {
  low: number;
  high: number;
}

/** One entry of the legend that all charts share: a job, or all jobs with the same value of a setting. */
export interface Entry {
  key: string;
  label: string;
  index: number;
}

/** What one chart says at the cursor. */
export interface Readout {
  key: string;
  label: string;
  colour: string;
  value: number;
}

/** How the charts are drawn, as far as it is kept with a layout. */
export interface ChartView {
  x: string;
  smoothing: number;
  logY: boolean;
  logX: boolean;
  colourBy: string;
  rowsBy: string;
  columnsBy: string;
  mean: boolean;
}

export class ChartGroup {
  jobs = $state.raw<string[]>([]);
  /** Settings that colours, rows and columns stand for; empty: each job on its own. */
  colourBy = $state("");
  rowsBy = $state("");
  columnsBy = $state("");
  /** One line with its spread for each entry of the legend, in place of one for each job. */
  mean = $state(false);
  /** The entry of the legend that is pointed at. */
  focus = $state<string | null>(null);
  configs = $state.raw<Configs>(new Map());
  names = $state.raw<ReadonlyMap<string, string>>(new Map());
  /** Values at the cursor, by chart. */
  readouts = $state.raw<ReadonlyMap<string, Readout[]>>(new Map());
  readonly values = $derived(this.colourBy ? valuesOf(this.configs, this.jobs, this.colourBy) : []);
  readonly legend = $derived<Entry[]>(
    this.colourBy
      ? this.values.map((one, index) => ({ key: one, label: `${this.colourBy} ${one}`, index }))
      : this.jobs.length > 1
        ? this.jobs.map((job, index) => ({ key: job, label: this.names.get(job) ?? job, index }))
        : [],
  );
  readonly facets = $derived<{ panels: Panel[]; columns: number }>(panelsOf(this.configs, this.jobs, this.rowsBy, this.columnsBy));
  x = $state("step");
  range = $state.raw<Range | null>(null);
  rank = $state<number | null>(null);
  smoothing = $state(0);
  logY = $state(false);
  logX = $state(false);
  /** Where the pointer is, on the x-axis of all charts. */
  cursor = $state<number | null>(null);
  hidden = $state.raw<ReadonlySet<string>>(new Set());
  private charts = new Map<string, ChartData>();
  private wanted = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running = new Set<AbortController>();
  private topic: JobTopic | null = null;

  constructor(jobs: string[], topic: JobTopic | null = null) {
    this.jobs = jobs;
    this.topic = topic;
  }

  /** Which entry of the legend a job belongs to. */
  entryOf(job: string): string {
    return this.colourBy ? valueOf(this.configs, job, this.colourBy) : job;
  }

  colourOf(job: string, dark: boolean): string {
    if (!this.colourBy) return jobColour(job, dark);
    return lineColour(Math.max(0, this.values.indexOf(this.entryOf(job))), dark);
  }

  entryColour(entry: Entry, dark: boolean): string {
    return this.colourBy ? lineColour(entry.index, dark) : jobColour(entry.key, dark);
  }

  labelOf(job: string): string {
    return this.names.get(job) ?? suffix(job);
  }

  toggle(entry: string): void {
    const next = new Set(this.hidden);
    if (!next.delete(entry)) next.add(entry);
    this.hidden = next;
  }

  tell(chart: string, readout: Readout[] | null): void {
    if (!readout && !this.readouts.has(chart)) return;
    const next = new Map(this.readouts);
    if (readout) next.set(chart, readout);
    else next.delete(chart);
    this.readouts = next;
  }

  get view(): ChartView {
    const { x, smoothing, logY, logX, colourBy, rowsBy, columnsBy, mean } = this;
    return { x, smoothing, logY, logX, colourBy, rowsBy, columnsBy, mean };
  }

  set view(next: Partial<ChartView>) {
    Object.assign(this, next);
  }

  get key(): string {
    return JSON.stringify([this.jobs, this.x, this.range, this.rank]);
  }

  /** Data of one metric, loaded when somebody shows it. */
  open(name: string): ChartData {
    let found = this.charts.get(name);
    if (!found) {
      found = new ChartData();
      this.charts.set(name, found);
    }
    found.users += 1;
    if (found.key !== this.key) this.want(name);
    return found;
  }

  close(name: string): void {
    const found = this.charts.get(name);
    if (!found) return;
    found.users -= 1;
    if (found.users <= 0 && this.charts.size > 400) this.charts.delete(name);
  }

  zoom(range: Range | null): void {
    this.range = range;
    this.reload();
  }

  axis(x: string): void {
    this.x = x;
    this.range = null;
    this.reload();
  }

  ranks(rank: number | null): void {
    this.rank = rank;
    this.reload();
  }

  /** Everything that is on the screen, anew; what is not will be when it comes there. */
  reload(): void {
    for (const controller of this.running) controller.abort();
    this.running.clear();
    for (const [name, chart] of this.charts) {
      chart.key = "";
      if (chart.users > 0) this.want(name);
    }
  }

  listen(): () => void {
    return this.topic?.onPoints((news) => this.append(news)) ?? ((): void => undefined);
  }

  private want(name: string): void {
    this.wanted.add(name);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), GATHER_MS);
  }

  private load(): void {
    const names = [...this.wanted];
    this.wanted.clear();
    for (let at = 0; at < names.length; at += NAMES_AT_ONCE) void this.fetch(names.slice(at, at + NAMES_AT_ONCE));
  }

  private async fetch(names: string[]): Promise<void> {
    const key = this.key;
    const controller = new AbortController();
    this.running.add(controller);
    try {
      const body = {
        jobs: this.jobs, names, x: this.x === "elapsed" ? "time" : this.x, rank: this.rank, pixels: PIXELS,
        low: this.range?.low ?? null, high: this.range?.high ?? null,
      };
      const lines = decodeLines(await postBinary("api/charts", body, controller.signal));
      if (key !== this.key) return;
      for (const name of names) this.put(name, key, lines.filter((line) => line.name === name));
      this.tellTopic();
    } catch (error) {
      if (error instanceof DOMException) return;
      const message = error instanceof ApiError ? error.message : "the server does not answer";
      for (const name of names) {
        const chart = this.charts.get(name);
        if (chart) chart.error = message;
      }
    } finally {
      this.running.delete(controller);
    }
  }

  private put(name: string, key: string, lines: Line[]): void {
    const chart = this.charts.get(name);
    if (!chart) return;
    chart.key = key;
    chart.error = "";
    chart.lines = lines;
    chart.version += 1;
  }

  private tellTopic(): void {
    if (!this.topic) return;
    const points = new Map<number, number>();
    for (const chart of this.charts.values()) {
      if (chart.users > 0) for (const line of chart.lines ?? []) points.set(line.key, line.count);
    }
    this.topic.watch(points);
  }

  /** New points go to the end of their lines; a line that has become too long for the screen is asked for again. */
  private append(news: PointsNews[]): void {
    const byKey = new Map(news.map((one) => [one.key, one]));
    for (const [name, chart] of this.charts) {
      if (!chart.lines) continue;
      let changed = false;
      for (const line of chart.lines) {
        const fresh = byKey.get(line.key);
        if (!fresh) continue;
        const gap = fresh.from !== line.count;
        line.count = fresh.from + fresh.value.length;
        if (this.range !== null) continue;
        if (gap || (this.x !== "step" && this.x !== "time" && this.x !== "elapsed") || line.x.length > PIXELS * 8) {
          this.want(name);
          continue;
        }
        const xs = this.x === "step" ? fresh.step : fresh.time;
        extend(line, xs, fresh.value.map(asNumber));
        line.last = xs[xs.length - 1] ?? line.last;
        changed = true;
      }
      if (changed) chart.version += 1;
    }
  }
}

/** Append in place, with room to spare, so that a live chart does not copy itself with every point. */
export function extend(line: Line, xs: number[], ys: number[]): void {
  line.x = appended(line.x, xs);
  line.y = appended(line.y, ys);
}

function appended(values: Float64Array, fresh: number[]): Float64Array {
  const length = values.length + fresh.length;
  let buffer = values.buffer as ArrayBuffer & { spare?: boolean };
  let start = values.byteOffset / 8;
  if (!buffer.spare || buffer.byteLength / 8 < start + length) {
    const larger = new Float64Array(Math.max(64, length * 2));
    larger.set(values);
    buffer = larger.buffer as ArrayBuffer & { spare?: boolean };
    buffer.spare = true;
    start = 0;
  }
  const found = new Float64Array(buffer, start * 8, length);
  found.set(fresh, values.length);
  return found;
}
