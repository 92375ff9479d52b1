// The one live connection of the page: a long poll that says what is shown and what is known of it, and gets the rest.
// Nothing is remembered by the server, so sleep, a lost network and a restarted server all end in the same next request.

import type { Job, JobAnswer, JobWish, LiveAnswer, TableAnswer, TableWish } from "./types";
import { ApiError, OfflineError, post } from "./client";

export interface Topic<Wish, Answer> {
  wish(): Wish;
  take(answer: Answer): void;
  fail(error: ApiError): void;
}

export type Status = "connecting" | "live" | "offline" | "login";

const WAIT_S = 20;
const RETRY_MS = [300, 1000, 2000, 5000];
const HIDDEN_MS = 60_000;

class Live {
  status = $state<Status>("connecting");
  private table: Topic<TableWish, TableAnswer> | null = null;
  private job: Topic<JobWish, JobAnswer> | null = null;
  private position: string | null = null;
  private running: AbortController | null = null;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  private asleep = false;

  start(): void {
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.hiddenTimer);
      if (document.hidden) {
        this.hiddenTimer = setTimeout(() => this.sleep(), HIDDEN_MS);
      } else {
        this.wake();
      }
    });
    window.addEventListener("online", () => this.wake());
    window.addEventListener("pageshow", () => this.wake());
    this.again();
  }

  showTable(topic: Topic<TableWish, TableAnswer> | null): void {
    this.table = topic;
    this.fresh();
  }

  showJob(topic: Topic<JobWish, JobAnswer> | null): void {
    this.job = topic;
    this.fresh();
  }

  /** What is shown has changed: ask at once, and for everything that is not known. */
  fresh(): void {
    this.position = null;
    this.again();
  }

  retry(): void {
    this.failures = 0;
    this.again();
  }

  private sleep(): void {
    this.asleep = true;
    this.running?.abort();
  }

  private wake(): void {
    if (this.asleep || this.status === "offline") {
      this.asleep = false;
      this.retry();
    }
  }

  private again(): void {
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = null;
    this.timer = setTimeout(() => void this.run(), 0);
  }

  private async run(): Promise<void> {
    const { table, job } = this;
    if (this.asleep || this.status === "login" || (!table && !job)) return;
    const controller = new AbortController();
    this.running = controller;
    const overdue = setTimeout(() => controller.abort(new OfflineError()), (WAIT_S + 15) * 1000);
    try {
      const answer = await post<LiveAnswer>(
        "api/live",
        { position: this.position, wait_s: WAIT_S, table: table?.wish() ?? null, job: job?.wish() ?? null },
        controller.signal,
      );
      if (this.running !== controller) return;
      this.failures = 0;
      this.status = "live";
      this.position = answer.position;
      if (answer.table) table?.take(answer.table);
      if (answer.job) job?.take(answer.job);
      this.timer = setTimeout(() => void this.run(), 0);
    } catch (error) {
      if (this.running !== controller) return;
      this.failed(error, table, job);
    } finally {
      clearTimeout(overdue);
    }
  }

  private failed(error: unknown, table: Topic<TableWish, TableAnswer> | null, job: Topic<JobWish, JobAnswer> | null): void {
    if (error instanceof ApiError && error.status === 401) {
      this.status = "login";
      return;
    }
    if (error instanceof ApiError && error.status < 500 && error.status !== 429) {
      // what was asked for is wrong: whoever asked says so, and asks otherwise
      (job && (error.status === 404 || error.status === 409) ? job : (table ?? job))?.fail(error);
      return;
    }
    this.status = "offline";
    const wait = RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)] ?? 5000;
    this.timer = setTimeout(() => void this.run(), wait);
  }
}

export const live = new Live();

/** A job as far as it is known, kept current. */
export class JobTopic implements Topic<JobWish, JobAnswer> {
  job = $state.raw<Job | null>(null);
  bytes = $state(0);
  error = $state<ApiError | null>(null);
  private known: Record<string, number> = {};
  private points = new Map<number, number>();
  private listeners = new Set<(news: JobAnswer["points"]) => void>();

  constructor(readonly ref: string) {}

  wish(): JobWish {
    return {
      ref: this.ref,
      known: this.known,
      points: Object.fromEntries(this.points),
      bytes: this.bytes,
    };
  }

  take(answer: JobAnswer): void {
    this.error = null;
    this.known = answer.checksums;
    if (Object.keys(answer.parts).length) this.job = { ...(this.job as Job), ...answer.parts };
    this.bytes = answer.bytes;
    for (const news of answer.points) this.points.set(news.key, news.from + news.value.length);
    if (answer.points.length) for (const listener of this.listeners) listener(answer.points);
  }

  fail(error: ApiError): void {
    this.error = error;
  }

  /** Charts say which series they draw, and how many points of each they have. */
  watch(points: Map<number, number>): void {
    this.points = points;
    live.fresh();
  }

  onPoints(listener: (news: JobAnswer["points"]) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
