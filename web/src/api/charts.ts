// The binary answer of /api/charts: b"HWP1", length of the head, head as JSON, then x and y of each series as doubles.

export interface Line {
  job: string;
  key: number;
  name: string;
  rank: number;
  attempt: number;
  /** Points that were logged in all; live news go on from there. */
  count: number;
  first: number | null;
  last: number | null;
  x: Float64Array;
  y: Float64Array;
}

interface Head {
  series: (Omit<Line, "x" | "y"> & { rows: number })[];
}

export function decodeLines(buffer: ArrayBuffer): Line[] {
  const view = new DataView(buffer);
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, 4));
  if (magic !== "HWP1") throw new Error("the answer is not a chart");
  const length = view.getUint32(4, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as Head;
  let at = 8 + length;
  return head.series.map(({ rows, ...series }) => {
    const x = new Float64Array(buffer, at, rows);
    const y = new Float64Array(buffer, at + 8 * rows, rows);
    at += 16 * rows;
    return { ...series, x, y };
  });
}
