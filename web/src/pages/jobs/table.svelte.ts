// The table of jobs as far as it is on the screen: a window of rows, kept current by the live connection.

import type { ApiError } from "../../api/client";
import { live, type Topic } from "../../api/live.svelte";
import type { Row, State, TableAnswer, TableWish } from "../../api/types";

const CHUNK = 20;
const LIMIT = 80;
const KEPT_ROWS_MAX = 2000;
const SCROLLING_MS = 40;

export interface Columns {
  metrics: string[];
  config: string[];
}

export class JobTable implements Topic<TableWish, TableAnswer> {
  total = $state(-1);
  states = $state.raw<Partial<Record<State, number>>>({});
  rows = $state.raw<ReadonlyMap<string, Row>>(new Map());
  places = $state.raw<ReadonlyMap<number, string>>(new Map());
  sparks = $state.raw<ReadonlyMap<string, (number | null)[]>>(new Map());
  error = $state.raw<ApiError | null>(null);
  query = "";
  sort = "-submitted";
  columns: Columns = { metrics: [], config: [] };
  spark: string | null = null;
  private offset = 0;
  private checksums = new Map<string, number>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  wish(): TableWish {
    const known: Record<string, number> = {};
    for (let at = this.offset; at < this.offset + LIMIT; at++) {
      const id = this.places.get(at);
      const checksum = id === undefined ? undefined : this.checksums.get(id);
      if (id !== undefined && checksum !== undefined) known[id] = checksum;
    }
    return {
      query: this.query, sort: this.sort, offset: this.offset, limit: LIMIT, config: this.columns.config,
      metrics: this.columns.metrics, spark: this.spark, total: this.total, known,
    };
  }

  take(answer: TableAnswer): void {
    this.error = null;
    const rows = new Map(this.rows.size > KEPT_ROWS_MAX ? [] : this.rows);
    const places = new Map(this.rows.size > KEPT_ROWS_MAX ? [] : this.places);
    for (const [id, row] of Object.entries(answer.rows)) rows.set(id, row);
    for (const [id, checksum] of Object.entries(answer.checksums)) this.checksums.set(id, checksum);
    answer.ids.forEach((id, index) => places.set(this.offset + index, id));
    for (const at of places.keys()) if (at >= answer.total) places.delete(at);
    if (Object.keys(answer.sparks).length) {
      const sparks = new Map(this.sparks);
      for (const [id, curve] of Object.entries(answer.sparks)) sparks.set(id, curve);
      this.sparks = sparks;
    }
    this.rows = rows;
    this.places = places;
    this.total = answer.total;
    this.states = answer.states;
  }

  fail(error: ApiError): void {
    this.error = error;
  }

  row(index: number): Row | undefined {
    const id = this.places.get(index);
    return id === undefined ? undefined : this.rows.get(id);
  }

  /** Rows from `first` to `last` are on the screen. */
  see(first: number, last: number): void {
    if (first >= this.offset && last < this.offset + LIMIT) return;
    const middle = Math.floor((first + last) / 2 - LIMIT / 2);
    const offset = Math.max(0, Math.floor(middle / CHUNK) * CHUNK);
    if (offset === this.offset) return;
    this.offset = offset;
    // While somebody scrolls fast, what flies by is not asked for.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => live.fresh(), SCROLLING_MS);
  }

  ask(query: string, sort: string): void {
    if (query === this.query && sort === this.sort) return;
    this.query = query;
    this.sort = sort;
    this.restart(false);
  }

  show(columns: Columns, spark: string | null): void {
    const same = JSON.stringify([columns, spark]) === JSON.stringify([this.columns, this.spark]);
    if (same) return;
    this.columns = columns;
    this.spark = spark;
    this.restart(true);
  }

  private restart(keep: boolean): void {
    this.checksums.clear();
    this.offset = keep ? this.offset : 0;
    this.places = keep ? this.places : new Map();
    this.total = keep ? this.total : -1;
    live.fresh();
  }
}

const LIKED = [/^(?!printed\/).*loss/i, /acc|top1|f1|auc|reward|score|map$/i, /ppl|perplex|mse|mae/i];

/** Metrics that are worth a column without anybody having chosen: what most rows have, losses and scores first. */
export function liked(rows: Iterable<Row>, most: number): string[] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const name of Object.keys(row.metrics ?? {})) counts.set(name, (counts.get(name) ?? 0) + 1);
  const weight = (name: string): number => {
    const place = LIKED.findIndex((one) => one.test(name));
    return (counts.get(name) ?? 0) * (place < 0 ? 1 : 4 - place) * (name.startsWith("printed/") ? 0.5 : 1);
  };
  return [...counts.keys()].sort((a, b) => weight(b) - weight(a) || a.localeCompare(b)).slice(0, most);
}
