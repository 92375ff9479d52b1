// How numbers, times and sizes are written. All pure, so that they can be tested.

import type { Cause, Num, Row, State, Waiting } from "../api/types";

export const asNumber = (value: Num | null | undefined): number =>
  typeof value === "number" ? value : value === null || value === undefined ? NaN : Number(value);

/** A measured value in about `digits` figures: 0.3121, 1.2e-5, 12 345. */
export function value(raw: Num | null | undefined, digits = 4): string {
  if (raw === null || raw === undefined) return "–";
  if (typeof raw === "string") return raw === "Infinity" ? "∞" : raw === "-Infinity" ? "−∞" : "NaN";
  if (Number.isNaN(raw)) return "NaN";
  if (!Number.isFinite(raw)) return raw > 0 ? "∞" : "−∞";
  if (raw === 0) return "0";
  const size = Math.abs(raw);
  if (Number.isInteger(raw) && size < 1e6) return String(raw).replace("-", "−");
  if (size >= 1e6 || size < 1e-4) return raw.toExponential(digits - 2).replace("e+", "e").replace("-", "−");
  return String(Number(raw.toPrecision(digits))).replace("-", "−");
}

/** Anything from a config, on one line. */
export function plain(raw: unknown): string {
  if (raw === null || raw === undefined) return "–";
  if (typeof raw === "string") return raw;
  if (typeof raw === "number") return value(raw, 6);
  return JSON.stringify(raw);
}

export function count(number: number): string {
  return number.toLocaleString("en-US").replaceAll(",", " ");
}

export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let rest = size;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 ? rest.toFixed(0) : rest.toFixed(1)} ${units[unit]}`;
}

export function percent(part: number | null | undefined): string {
  return part === null || part === undefined ? "–" : `${part.toFixed(0)} %`;
}

/** 12 s, 3:07, 2:41:09, 3 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const two = (n: number): string => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${two(whole % 60)}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}:${two(minutes % 60)}:${two(whole % 60)}`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** just now, 5 min ago, yesterday 14:03, 3 Mar. */
export function ago(iso: string | null | undefined, now: number): string {
  if (!iso) return "–";
  const then = Date.parse(iso);
  const seconds = (now - then) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 7 * 86_400) return `${Math.floor(seconds / 86_400)} d ago`;
  return new Date(then).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
}

/** In the viewer's zone. */
export function clock(iso: string | null | undefined): string {
  if (!iso) return "–";
  return new Date(iso).toLocaleString(undefined, {
    year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
  });
}

export function timeOfDay(iso: string | null | undefined): string {
  if (!iso) return "";
  const date = new Date(iso);
  const two = (n: number): string => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export const utc = (iso: string | null | undefined): string => (iso ? `${iso.slice(0, 19).replace("T", " ")} UTC` : "");

export const GLYPH: Record<State, string> = {
  waiting: "◌", running: "●", stopping: "◐", succeeded: "✓", failed: "✗", stopped: "■", held: "‖", unknown: "?",
};

export const OPEN: readonly State[] = ["waiting", "running", "stopping", "held", "unknown"];

export const suffix = (id: string): string => id.slice(id.lastIndexOf("-") + 1);

interface Standing {
  state: State;
  health?: { text: string } | null | undefined;
  retries?: { next_at: string | null } | undefined;
  cause?: Cause | null | undefined;
  waiting?: Waiting | null | undefined;
  exit_code?: number | null | undefined;
  signal?: number | null | undefined;
  heard_at?: string | null | undefined;
}

/** The one line that stands beside a state wherever it is shown. */
export function why(job: Standing, now: number): string {
  const { state } = job;
  if (state === "waiting") {
    const waiting = job.waiting;
    const next = waiting?.next_at ?? job.retries?.next_at;
    if (next && Date.parse(next) > now) return `tries again in ${duration((Date.parse(next) - now) / 1000)}`;
    if (waiting?.after?.length) return `waits for ${waiting.after.map(suffix).join(", ")}`;
    if (waiting?.word) return waiting.word;
    if (waiting?.ahead) return `${waiting.ahead} ahead`;
    return waiting?.ahead === 0 ? "next" : "";
  }
  if (state === "running" && job.health) return job.health.text;
  if (state === "unknown" && job.heard_at) return `last heard ${ago(job.heard_at, now)}`;
  if (state === "failed" || state === "held" || state === "stopped") {
    if (job.cause?.text) return job.cause.text;
    if (job.signal) return `signal ${job.signal}`;
    if (job.exit_code) return `exit code ${job.exit_code}`;
  }
  return "";
}

/** What stands beside a state is bad news that a person must look at. */
export const troubled = (job: Standing): boolean => job.state === "failed" || (job.state === "running" && !!job.health);

/** Seconds that a job has run, going on by itself while it runs. */
export function elapsed(job: Pick<Row, "started_at" | "ended_at">, now: number): number | null {
  if (!job.started_at) return null;
  const end = job.ended_at ? Date.parse(job.ended_at) : now;
  return Math.max(0, (end - Date.parse(job.started_at)) / 1000);
}

/** What differs in each command from the others: the words they share at either end are left out. */
export function differing(commands: string[]): string[] {
  if (commands.length < 2) return commands;
  const words = commands.map((one) => one.split(" "));
  const shortest = Math.min(...words.map((one) => one.length));
  const first = words[0] as string[];
  let head = 0;
  while (head < shortest - 1 && words.every((one) => one[head] === first[head])) head += 1;
  return words.map((one) => (head > 1 ? `… ${one.slice(head).join(" ")}` : one.join(" ")));
}

export function flatten(config: Record<string, unknown> | null | undefined, prefix = ""): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(config ?? {})) {
    if (inner && typeof inner === "object" && !Array.isArray(inner) && Object.keys(inner).length) {
      Object.assign(found, flatten(inner as Record<string, unknown>, `${prefix}${key}.`));
    } else {
      found[prefix + key] = inner;
    }
  }
  return found;
}
