// A page that was exported as one file: the same program, with the answers of the server inside it (`hw page export`).

import { decodeLines, type Line } from "./charts";
import type { Job, LinesAnswer, LogLine } from "./types";

/** What a comparison shows, in place of one job. */
interface ComparedData {
  compare: unknown;
  /** By the metric that was asked for. */
  importance: Record<string, unknown>;
  diff: unknown;
}

interface Data {
  job: Job | null;
  compared: ComparedData | null;
  names: unknown;
  /** /api/charts of all metrics, as base64. */
  charts: string[];
  lines: LinesAnswer;
  /** Answers of other routes of the job, by the last part of their path. */
  parts: Record<string, unknown>;
  exported_at: string;
  version: string;
}

function read(): Data | null {
  const text = document.getElementById("headway-data")?.textContent;
  return text ? (JSON.parse(text) as Data) : null;
}

export const embedded = typeof document === "undefined" ? null : read();

const json = (value: unknown): Response => new Response(JSON.stringify(value), { headers: { "content-type": "application/json" } });
let charts: Line[] | null = null;

function allLines(data: Data): Line[] {
  charts ??= data.charts.flatMap((text) => decodeLines(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer));
  return charts;
}

/** What the server would have said. Logs are cut to the lines that were exported; they keep their numbers. */
export function answer(data: Data, method: string, url: URL, body: unknown, signal?: AbortSignal): Promise<Response> {
  const path = url.pathname.replace(/^.*\/api\//, "");
  const last = path.slice(path.lastIndexOf("/") + 1);
  if (data.compared) {
    if (path === "compare") return Promise.resolve(json(data.compared.compare));
    const metric = (body as { name?: string[] } | undefined)?.name?.[0] ?? "";
    if (path === "compare/importance" && data.compared.importance[metric]) return Promise.resolve(json(data.compared.importance[metric]));
    if (path === "diff" && data.compared.diff) return Promise.resolve(json(data.compared.diff));
  }
  if (path === "live") {
    const { job } = data;
    const asked = body as { job: { known: Record<string, number> } | null };
    if (!job || !asked.job || Object.keys(asked.job.known).length) return never(signal);
    const checksums = Object.fromEntries(Object.keys(job).map((key) => [key, 1]));
    return Promise.resolve(json({ position: "file:0", table: null, job: { id: job.id, parts: job, checksums, points: [], bytes: data.lines.bytes } }));
  }
  if (path === "charts") return Promise.resolve(encodeCharts(allLines(data), body as ChartsAsked));
  if (last === "lines") return Promise.resolve(json(cutLines(data, url.searchParams)));
  if (last === "find") return Promise.resolve(json(findLines(data, url.searchParams)));
  if (last === "names") return Promise.resolve(json(data.names));
  if (path === "server") return Promise.resolve(json({ version: data.version, role: "read", home: "", started_at: data.exported_at, jobs: {} }));
  if (path.endsWith("usage/by")) {
    const told = (data.parts["usage_by"] as Record<string, unknown> | undefined)?.[url.searchParams.get("by") ?? "rank"];
    if (told) return Promise.resolve(json(told));
  }
  if (method === "GET" && last in data.parts) return Promise.resolve(json(data.parts[last]));
  return Promise.resolve(new Response(JSON.stringify({ error: { message: "this is not in the exported file", hint: "" } }), { status: 404 }));
}

function never(signal?: AbortSignal): Promise<Response> {
  return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new DOMException("", "AbortError"))));
}

interface ChartsAsked {
  names: string[];
  x: string;
  low: number | null;
  high: number | null;
}

function encodeCharts(lines: Line[], asked: ChartsAsked): Response {
  const kept = asked.x === "step" ? lines.filter((line) => asked.names.includes(line.name)) : [];
  let head = JSON.stringify({ series: kept.map(({ x, y: _, ...rest }) => ({ ...rest, rows: x.length })) });
  const encoder = new TextEncoder();
  head += " ".repeat((8 - (encoder.encode(head).length % 8)) % 8);
  const text = encoder.encode(head);
  const total = kept.reduce((sum, line) => sum + line.x.length * 2, 0);
  const buffer = new ArrayBuffer(8 + text.length + total * 8);
  new Uint8Array(buffer).set(encoder.encode("HWP1"));
  new DataView(buffer).setUint32(4, text.length, true);
  new Uint8Array(buffer).set(text, 8);
  const values = new Float64Array(buffer, 8 + text.length);
  let at = 0;
  for (const line of kept) {
    for (const column of [line.x, line.y]) {
      values.set(column, at);
      at += column.length;
    }
  }
  return new Response(buffer);
}

const fits = (line: LogLine, query: URLSearchParams): boolean =>
  (!query.get("rank") || String(line.rank) === query.get("rank")) && (!query.get("stream") || line.stream === query.get("stream"));

function chosen(data: Data, query: URLSearchParams): LogLine[] {
  const lines = data.lines.lines.filter((line) => fits(line, query));
  return lines.map((line, n) => ({ ...line, n }));
}

function cutLines(data: Data, query: URLSearchParams): LinesAnswer {
  const lines = chosen(data, query);
  const count = Number(query.get("count") ?? 200);
  const first = query.get("tail") === "true" ? Math.max(0, lines.length - count) : Number(query.get("first") ?? 0);
  return { total: lines.length, first, lines: lines.slice(first, first + count), bytes: data.lines.bytes };
}

function findLines(data: Data, query: URLSearchParams): { hits: number[]; more: boolean; timed_out: boolean; total: number } {
  const lines = chosen(data, query);
  const text = query.get("text") ?? "";
  const source = query.get("errors") ? "Traceback|Error|ERROR|Exception" : query.get("regex") === "true" ? text : text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const pattern = new RegExp(source, query.get("errors") ? "" : "i");
  return { hits: lines.filter((line) => pattern.test(line.text)).map((line) => line.n), more: false, timed_out: false, total: lines.length };
}
