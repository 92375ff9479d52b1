// A log by line numbers: chunks that were looked at, asked for when they are missing, never all of it.

import { ApiError, get, jobPath } from "../api/client";
import type { LinesAnswer, LogLine } from "../api/types";

export const CHUNK = 200;
const CHUNKS_MAX = 60;

export interface Choice {
  attempt: number | null;
  rank: number | null;
  stream: string | null;
}

export interface Hits {
  hits: number[];
  more: boolean;
  timed_out: boolean;
  total: number;
}

export class LogSource {
  total = $state(-1);
  bytes = $state(0);
  /** Rises whenever there is more to show. */
  version = $state(0);
  error = $state("");
  private chunks = new Map<number, LogLine[]>();
  private loading = new Set<number>();

  constructor(
    readonly ref: string,
    readonly choice: Choice,
  ) {}

  query(): Record<string, string | number | null> {
    return { attempt: this.choice.attempt, rank: this.choice.rank, stream: this.choice.stream };
  }

  line(number: number): LogLine | undefined {
    return this.chunks.get(Math.floor(number / CHUNK))?.[number % CHUNK];
  }

  /** See that these lines are there, or come. */
  need(first: number, last: number): void {
    for (let chunk = Math.floor(Math.max(0, first) / CHUNK); chunk <= Math.floor(Math.max(0, last) / CHUNK); chunk++) {
      const known = this.chunks.get(chunk);
      const wanted = Math.min(CHUNK, this.total - chunk * CHUNK);
      if (this.total >= 0 && wanted <= 0) continue;
      if (known && (this.total < 0 || known.length >= wanted)) {
        this.chunks.delete(chunk);
        this.chunks.set(chunk, known);
        continue;
      }
      if (!this.loading.has(chunk)) void this.load(chunk);
    }
  }

  /** How much there is by now. */
  async refresh(): Promise<void> {
    await this.load(this.total <= 0 ? 0 : Math.floor((this.total - 1) / CHUNK));
  }

  async tail(): Promise<void> {
    try {
      this.take(await get<LinesAnswer>(jobPath(this.ref, "lines"), { ...this.query(), tail: true, count: CHUNK }));
    } catch (error) {
      this.fail(error);
    }
  }

  /** The number of the line that holds this byte; only where one stream is chosen. */
  async lineAt(offset: number): Promise<number | null> {
    try {
      const answer = await get<LinesAnswer>(jobPath(this.ref, "lines"), { ...this.query(), at: offset, count: CHUNK });
      this.take(answer);
      return answer.first;
    } catch (error) {
      this.fail(error);
      return null;
    }
  }

  find(text: string, regex: boolean, errors = false, signal?: AbortSignal): Promise<Hits> {
    const query = errors ? { errors: true, limit: 1 } : { text, regex };
    return get<Hits>(jobPath(this.ref, "find"), { ...this.query(), ...query }, signal);
  }

  private async load(chunk: number): Promise<void> {
    this.loading.add(chunk);
    try {
      this.take(await get<LinesAnswer>(jobPath(this.ref, "lines"), { ...this.query(), first: chunk * CHUNK, count: CHUNK }));
    } catch (error) {
      this.fail(error);
    } finally {
      this.loading.delete(chunk);
    }
  }

  private take(answer: LinesAnswer): void {
    this.error = "";
    this.total = answer.total;
    this.bytes = answer.bytes;
    for (const line of answer.lines) {
      const chunk = Math.floor(line.n / CHUNK);
      let lines = this.chunks.get(chunk);
      if (!lines) {
        lines = [];
        this.chunks.set(chunk, lines);
      }
      const at = line.n % CHUNK;
      // a tail may begin in the middle of a chunk: what is before it is asked for when it is looked at
      if (at <= lines.length) lines[at] = line;
    }
    for (const chunk of this.chunks.keys()) {
      if (this.chunks.size <= CHUNKS_MAX) break;
      this.chunks.delete(chunk);
    }
    this.version += 1;
  }

  private fail(error: unknown): void {
    this.error = error instanceof ApiError ? error.message : "the server does not answer";
  }
}
