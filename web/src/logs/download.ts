// A stream of any length as a file: asked for in parts, which the browser keeps on disk until the last has come.

import { address, jobPath, raw } from "../api/client";
import { embedded } from "../api/embedded";
import type { Choice } from "./source.svelte";

const NEXT = "x-headway-next";

export async function downloadLog(ref: string, choice: Choice, name: string, told: (bytes: number) => void, signal: AbortSignal): Promise<void> {
  if (embedded) throw new Error("the whole log is not in the exported file");
  const parts: Blob[] = [];
  let offset = 0;
  for (;;) {
    const response = await raw(address(jobPath(ref, "logs"), { ...choice, format: "raw", offset }), signal);
    const part = await response.blob();
    const next = Number(response.headers.get(NEXT) ?? offset + part.size);
    if (part.size) parts.push(part);
    if (next <= offset) break;
    offset = next;
    told(offset);
  }
  const link = document.createElement("a");
  const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
