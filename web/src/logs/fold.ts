// Folding: neighbouring lines that differ only in numbers are one row that says how many there were.

import { lastDrawn } from "../lib/ansi";

export interface Row {
  /** Number of the first line, and how many lines the row stands for. */
  first: number;
  lines: number;
}

export const shape = (text: string): string => lastDrawn(text).replace(/\d+(?:[.:]\d+)*/g, "#").slice(0, 400);

/** Rows from line `first` on. `text` gives a line, or undefined where it is not known yet. */
export function rows(first: number, total: number, count: number, fold: boolean, text: (line: number) => string | undefined): Row[] {
  const found: Row[] = [];
  let at = first;
  while (at < total && found.length < count) {
    let lines = 1;
    const own = fold ? text(at) : undefined;
    if (own !== undefined) {
      const kind = shape(own);
      while (at + lines < total && lines < 1000) {
        const next = text(at + lines);
        if (next === undefined || shape(next) !== kind) break;
        lines += 1;
      }
      if (lines < 3) lines = 1;
    }
    found.push({ first: at, lines });
    at += lines;
  }
  return found;
}
