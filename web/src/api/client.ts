// Every request of the page goes through here: addresses below the page's own base, errors as the server words them.

import { answer, embedded } from "./embedded";

/** Where the page lives: one folder above its script, whatever a reverse proxy puts in front. */
const script = import.meta.url;
export const base = embedded ? new URL("./", location.href) : new URL(import.meta.env.DEV ? "/" : "../", script);

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

/** The server did not answer at all. */
export class OfflineError extends Error {}

type Query = Record<string, string | number | boolean | null | undefined | string[]>;

export function address(path: string, query: Query = {}): string {
  const url = new URL(path.replace(/^\//, ""), base);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(one));
  }
  return url.href;
}

async function request(method: string, url: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = embedded ? await answer(embedded, method, new URL(url), body, signal) : await fetch(url, {
      method,
      signal: signal ?? null,
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new OfflineError("the server does not answer");
  }
  if (response.ok) return response;
  let message = `the server answered ${response.status}`;
  let hint = "";
  try {
    const told = (await response.json()) as { error?: { message?: string; hint?: string } };
    message = told.error?.message ?? message;
    hint = told.error?.hint ?? "";
  } catch {
    // not one of our answers: a proxy in between; its status says enough
  }
  throw new ApiError(response.status, message, hint);
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await request("GET", address(path, query), undefined, signal)).json()) as T;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await request("POST", address(path), body, signal)).json()) as T;
}

export async function patch<T>(path: string, body: unknown): Promise<T> {
  return (await (await request("PATCH", address(path), body)).json()) as T;
}

export async function postBinary(path: string, body: unknown, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await request("POST", address(path), body, signal)).arrayBuffer();
}

/** An answer that is not JSON, as it comes. */
export const raw = (url: string, signal?: AbortSignal): Promise<Response> => request("GET", url, undefined, signal);

export const jobPath = (ref: string, what = ""): string => `api/jobs/${encodeURIComponent(ref)}${what && `/${what}`}`;
