// Drawing a chart on a canvas: grid, axes, lines with their gaps, marks for what is not finite, restarts.

import { label, place, ticks, timeLabel, timeTicks, type Scale } from "./scale";

export interface Curve {
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  colour: string;
  /** Drawn thin and pale under its smoothed self. */
  raw?: ArrayLike<number> | undefined;
  width?: number;
  faint?: boolean;
  /** Drawn with dashes: what a restart threw away. */
  dashed?: boolean;
}

export interface Band {
  x: ArrayLike<number>;
  low: ArrayLike<number>;
  high: ArrayLike<number>;
  colour: string;
}

export interface Frame {
  width: number;
  height: number;
  left: number;
  top: number;
  right: number;
  bottom: number;
  x: Scale;
  y: Scale;
}

export interface Look {
  line: string;
  dim: string;
  bad: string;
  font: string;
}

export interface Mark {
  x: number;
  text: string;
}

export const xPixel = (frame: Frame, value: number): number =>
  frame.left + place(frame.x, value) * (frame.width - frame.left - frame.right);
export const yPixel = (frame: Frame, value: number): number =>
  frame.height - frame.bottom - place(frame.y, value) * (frame.height - frame.top - frame.bottom);

export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

/** Colours of the page as a canvas needs them. */
export function lookOf(box: HTMLElement): Look {
  const probe = (variable: string): string => {
    box.style.setProperty("outline-color", `var(${variable})`);
    const found = getComputedStyle(box).outlineColor;
    box.style.removeProperty("outline-color");
    return found;
  };
  return { line: probe("--line"), dim: probe("--faint"), bad: probe("--bad"), font: `11px ${getComputedStyle(box).fontFamily}` };
}

export const rowTicks = (frame: Pick<Frame, "height" | "top" | "bottom" | "y">): number[] =>
  ticks(frame.y, Math.max(2, Math.floor((frame.height - frame.top - frame.bottom) / 38)));

export function drawAxes(context: CanvasRenderingContext2D, frame: Frame, look: Look, time: boolean, format: (value: number) => string = label, rows: number[] = rowTicks(frame)): void {
  const { width, height, left, right, bottom } = frame;
  context.font = look.font;
  context.lineWidth = 1;
  context.strokeStyle = look.line;
  context.fillStyle = look.dim;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.beginPath();
  for (const tick of rows) {
    const y = Math.round(yPixel(frame, tick)) + 0.5;
    context.moveTo(left, y);
    context.lineTo(width - right, y);
    context.fillText(format(tick), left - 6, y);
  }
  context.stroke();
  context.textBaseline = "top";
  context.textAlign = "center";
  const count = Math.max(2, Math.floor((width - left - right) / (time ? 110 : 84)));
  const columns = time ? timeTicks(frame.x, count) : ticks(frame.x, count);
  const span = frame.x.high - frame.x.low;
  let free = -Infinity; // labels never touch each other
  for (const tick of columns) {
    const x = xPixel(frame, tick);
    const text = time ? timeLabel(tick, span) : label(tick);
    const half = context.measureText(text).width / 2;
    if (x - half < left - 8 || x + half > width - right + 8 || x - half < free) continue;
    free = x + half + 10;
    context.fillText(text, x, height - bottom + 6);
  }
}

function path(context: CanvasRenderingContext2D, frame: Frame, xs: ArrayLike<number>, ys: ArrayLike<number>): void {
  let pen = false;
  context.beginPath();
  for (let i = 0; i < xs.length; i++) {
    const y = ys[i] as number;
    const px = xPixel(frame, xs[i] as number);
    const py = yPixel(frame, y);
    if (!Number.isFinite(y) || Number.isNaN(py) || Number.isNaN(px)) {
      pen = false;
      continue;
    }
    if (pen) context.lineTo(px, py);
    else context.moveTo(px, py);
    pen = true;
  }
  context.stroke();
}

/** Points that no line reaches: between two gaps, or the only one. */
function lonely(context: CanvasRenderingContext2D, frame: Frame, xs: ArrayLike<number>, ys: ArrayLike<number>): void {
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i] as number)) continue;
    const before = i > 0 && Number.isFinite(ys[i - 1] as number);
    const after = i + 1 < ys.length && Number.isFinite(ys[i + 1] as number);
    if (before || after) continue;
    context.beginPath();
    context.arc(xPixel(frame, xs[i] as number), yPixel(frame, ys[i] as number), 2, 0, 7);
    context.fill();
  }
}

function odd(context: CanvasRenderingContext2D, frame: Frame, xs: ArrayLike<number>, ys: ArrayLike<number>, look: Look): void {
  context.fillStyle = look.bad;
  const floor = frame.height - frame.bottom;
  let drawn = -10;
  for (let i = 0; i < xs.length; i++) {
    const y = ys[i] as number;
    if (Number.isFinite(y)) continue;
    const x = xPixel(frame, xs[i] as number);
    if (!(x >= frame.left - 1 && x <= frame.width - frame.right + 1) || Math.abs(x - drawn) < 3) continue;
    drawn = x;
    const up = y === Infinity;
    const tip = up ? frame.top : floor;
    context.beginPath();
    context.moveTo(x - 4, tip + (up ? 6 : -6));
    context.lineTo(x + 4, tip + (up ? 6 : -6));
    context.lineTo(x, tip);
    context.fill();
    if (Number.isNaN(y)) context.fillRect(x - 0.5, frame.top, 1, 5);
  }
}

/** The area between two lines, in pieces where one of them has gaps. */
function fillBand(context: CanvasRenderingContext2D, frame: Frame, band: Band): void {
  const known = (i: number): boolean => Number.isFinite(band.high[i] as number) && Number.isFinite(band.low[i] as number);
  for (let from = 0; from < band.x.length; from++) {
    if (!known(from)) continue;
    let to = from;
    while (to + 1 < band.x.length && known(to + 1)) to += 1;
    context.beginPath();
    for (let i = from; i <= to; i++) context.lineTo(xPixel(frame, band.x[i] as number), yPixel(frame, band.high[i] as number));
    for (let i = to; i >= from; i--) context.lineTo(xPixel(frame, band.x[i] as number), yPixel(frame, band.low[i] as number));
    context.fill();
    from = to;
  }
}

export function drawCurves(context: CanvasRenderingContext2D, frame: Frame, curves: Curve[], bands: Band[], marks: Mark[], look: Look): void {
  const { width, height, left, right, bottom, top } = frame;
  context.save();
  context.beginPath();
  context.rect(left, top - 2, width - left - right, height - top - bottom + 4);
  context.clip();
  for (const band of bands) {
    context.fillStyle = band.colour;
    context.globalAlpha = 0.16;
    fillBand(context, frame, band);
    context.globalAlpha = 1;
  }
  context.lineJoin = "round";
  for (const curve of curves) {
    context.strokeStyle = curve.colour;
    context.fillStyle = curve.colour;
    if (curve.raw) {
      context.globalAlpha = 0.28;
      context.lineWidth = 1;
      path(context, frame, curve.x, curve.raw);
    }
    context.globalAlpha = curve.faint ? 0.35 : 1;
    context.lineWidth = curve.width ?? 1.5;
    context.setLineDash(curve.dashed ? [4, 3] : []);
    path(context, frame, curve.x, curve.y);
    context.setLineDash([]);
    if (curve.x.length < 2000) lonely(context, frame, curve.x, curve.y);
    context.globalAlpha = 1;
  }
  for (const curve of curves) odd(context, frame, curve.x, curve.raw ?? curve.y, look);
  context.setLineDash([3, 3]);
  context.strokeStyle = look.dim;
  context.fillStyle = look.dim;
  context.lineWidth = 1;
  context.font = look.font;
  context.textAlign = "left";
  context.textBaseline = "top";
  for (const mark of marks) {
    const x = Math.round(xPixel(frame, mark.x)) + 0.5;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, height - bottom);
    context.stroke();
    context.fillText(mark.text, x + 3, top);
  }
  context.restore();
}
