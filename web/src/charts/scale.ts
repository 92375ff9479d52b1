// Axes: where values lie, where the ticks are, and what stands beside them. All pure.

export interface Scale {
  low: number;
  high: number;
  log: boolean;
}

/** 0 … 1 along the axis; NaN where the axis has no place for it. */
export function place(scale: Scale, value: number): number {
  if (scale.log) {
    if (value <= 0) return NaN;
    return (Math.log10(value) - Math.log10(scale.low)) / (Math.log10(scale.high) - Math.log10(scale.low));
  }
  return (value - scale.low) / (scale.high - scale.low);
}

export function valueAt(scale: Scale, share: number): number {
  if (scale.log) {
    const low = Math.log10(scale.low);
    return 10 ** (low + share * (Math.log10(scale.high) - low));
  }
  return scale.low + share * (scale.high - scale.low);
}

/** A scale that holds all finite values, with a little air; never empty. */
export function fit(lows: number, highs: number, log: boolean, air = 0.05): Scale {
  let low = lows;
  let high = highs;
  if (!Number.isFinite(low) || !Number.isFinite(high)) return { low: log ? 0.1 : 0, high: 1, log };
  if (log) {
    if (high <= low) return { low: low / 2, high: high * 2, log };
    const span = Math.log10(high) - Math.log10(low);
    return { low: 10 ** (Math.log10(low) - span * air), high: 10 ** (Math.log10(high) + span * air), log };
  }
  if (high <= low) {
    const half = Math.abs(low) * 0.1 || 0.5;
    low -= half;
    high += half;
    return { low, high, log };
  }
  const span = high - low;
  return { low: low - span * air, high: high + span * air, log };
}

export function niceStep(span: number, count: number): number {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  return (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10) * power;
}

export function ticks(scale: Scale, count: number): number[] {
  if (!(scale.high > scale.low)) return [];
  if (scale.log) return logTicks(scale, count);
  const step = niceStep(scale.high - scale.low, count);
  const found: number[] = [];
  for (let n = Math.ceil(scale.low / step); n * step <= scale.high && found.length < 100; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

function logTicks(scale: Scale, count: number): number[] {
  const first = Math.floor(Math.log10(scale.low));
  const last = Math.ceil(Math.log10(scale.high));
  const every = Math.max(1, Math.ceil((last - first) / count));
  const found: number[] = [];
  const within = last - first <= 2 ? [1, 2, 5] : [1];
  for (let power = first; power <= last; power += every) {
    for (const factor of within) {
      const tick = Number((factor * 10 ** power).toPrecision(3));
      if (tick >= scale.low && tick <= scale.high) found.push(tick);
    }
  }
  return found;
}

/** Ticks on whole KiB, MiB, GiB. */
export function byteTicks(scale: Scale, count: number): number[] {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(scale.high, 1)) / 10));
  return ticks({ low: scale.low / unit, high: scale.high / unit, log: false }, count).map((one) => one * unit);
}

const UNITS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];

/** Ticks on whole seconds, minutes, hours, days of the viewer's zone. */
export function timeTicks(scale: Scale, count: number): number[] {
  const span = scale.high - scale.low;
  if (!(span > 0)) return [];
  if (span / count < 1) return ticks({ ...scale, log: false }, count);
  const step = UNITS.find((one) => span / one <= count) ?? 2592000 * Math.ceil(span / count / 2592000);
  const zone = -new Date(scale.low * 1000).getTimezoneOffset() * 60;
  const found: number[] = [];
  for (let at = Math.ceil((scale.low + zone) / step) * step - zone; at <= scale.high && found.length < 100; at += step) found.push(at);
  return found;
}

export function timeLabel(seconds: number, span: number): string {
  const date = new Date(seconds * 1000);
  const two = (n: number): string => String(n).padStart(2, "0");
  if (span > 3 * 86400) return `${two(date.getDate())}.${two(date.getMonth() + 1)}.`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (span > 600) return clock;
  return span > 5 ? `${clock}:${two(date.getSeconds())}` : `${clock}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** 0.25, 12k, 3.4M, 1e-5: short enough for an axis. */
export function label(value: number, step = 0): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const short = (scaled: number, unit: string): string => `${Number(scaled.toPrecision(4))}${unit}`;
  if (size >= 1e12 || size < 1e-4) return value.toExponential(1).replace(".0e", "e").replace("e+", "e").replace("-", "−");
  let text: string;
  if (size >= 1e9) text = short(value / 1e9, "G");
  else if (size >= 1e6) text = short(value / 1e6, "M");
  else if (size >= 1e4) text = short(value / 1e3, "k");
  else text = String(Number(value.toPrecision(step && step < size / 1000 ? 7 : 5)));
  return text.replace("-", "−");
}

/** The moving average that TensorBoard draws, without its bias at the start; gaps stay gaps. */
export function smooth(values: ArrayLike<number>, weight: number): Float64Array {
  const found = new Float64Array(values.length);
  let last = 0;
  let seen = 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (!Number.isFinite(value)) {
      found[i] = value;
      continue;
    }
    seen += 1;
    last = last * weight + (1 - weight) * value;
    found[i] = last / (1 - weight ** seen);
  }
  return found;
}

/** Index of the value nearest to `wanted` in values that rise. */
export function nearestIndex(values: ArrayLike<number>, wanted: number): number {
  let low = 0;
  let high = values.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((values[middle] as number) <= wanted) low = middle;
    else high = middle;
  }
  return Math.abs((values[low] as number) - wanted) <= Math.abs((values[high] as number) - wanted) ? low : high;
}
