// What a job prints, as runs of text with a few known styles. Only SGR colours are understood; every other control
// character is shown as a mark. The result is drawn as text nodes: nothing in it can become markup.

export interface Run {
  text: string;
  /** Class names of ours, never a value that came from the job. */
  style: string;
}

// eslint-disable-next-line no-control-regex
const SEQUENCE = /\u001b\[([0-9;:]*)m|\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[@-_]?|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff]/g;

interface Pen {
  fg: string;
  bg: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

const plainPen = (): Pen => ({ fg: "", bg: "", bold: false, dim: false, italic: false, underline: false });

function styleOf(pen: Pen): string {
  const names = [pen.fg && `f${pen.fg}`, pen.bg && `b${pen.bg}`, pen.bold && "bold", pen.dim && "weak", pen.italic && "italic", pen.underline && "under"];
  return names.filter(Boolean).join(" ");
}

/** 256-colour and true colour are brought to the sixteen that the page has in light and dark. */
export function nearest(red: number, green: number, blue: number): string {
  const high = Math.max(red, green, blue);
  const low = Math.min(red, green, blue);
  if (high - low < 40) return high < 60 ? "0" : high < 140 ? "8" : high < 210 ? "7" : "15";
  const bits = (red > (high + low) / 2 ? 1 : 0) | (green > (high + low) / 2 ? 2 : 0) | (blue > (high + low) / 2 ? 4 : 0);
  return String(bits + (high > 200 ? 8 : 0));
}

function from256(code: number): string {
  if (code < 16) return String(code);
  if (code > 231) {
    const grey = (code - 232) * 10 + 8;
    return nearest(grey, grey, grey);
  }
  const level = (n: number): number => (n ? n * 40 + 55 : 0);
  const at = code - 16;
  return nearest(level(Math.floor(at / 36)), level(Math.floor(at / 6) % 6), level(at % 6));
}

function apply(pen: Pen, codes: number[]): Pen {
  const next = { ...pen };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] as number;
    if (code === 0) Object.assign(next, plainPen());
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code >= 30 && code <= 37) next.fg = String(code - 30);
    else if (code === 39) next.fg = "";
    else if (code >= 40 && code <= 47) next.bg = String(code - 40);
    else if (code === 49) next.bg = "";
    else if (code >= 90 && code <= 97) next.fg = String(code - 82);
    else if (code >= 100 && code <= 107) next.bg = String(code - 92);
    else if (code === 38 || code === 48) {
      const kind = codes[i + 1];
      let colour = "";
      if (kind === 5) {
        colour = from256(Math.min(255, codes[i + 2] ?? 0));
        i += 2;
      } else if (kind === 2) {
        colour = nearest(codes[i + 2] ?? 0, codes[i + 3] ?? 0, codes[i + 4] ?? 0);
        i += 4;
      }
      if (code === 38) next.fg = colour;
      else next.bg = colour;
    }
  }
  return next;
}

export function parse(line: string): Run[] {
  const text = lastDrawn(line);
  const runs: Run[] = [];
  let pen = plainPen();
  let at = 0;
  const put = (piece: string, style: string): void => {
    if (!piece) return;
    const last = runs[runs.length - 1];
    if (last && last.style === style) last.text += piece;
    else runs.push({ text: piece, style });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    put(text.slice(at, match.index), styleOf(pen));
    at = match.index + match[0].length;
    if (match[1] !== undefined) {
      pen = apply(pen, match[1] === "" ? [0] : match[1].split(/[;:]/).map(Number));
    } else if (!match[0].startsWith("\u001b[")) {
      put("\ufffd", "control");
    }
  }
  put(text.slice(at), styleOf(pen));
  return runs;
}

/** A line that was drawn over itself with carriage returns, as it looked at the end. */
export function lastDrawn(line: string): string {
  const at = line.lastIndexOf("\r");
  if (at < 0) return line;
  const last = line.slice(at + 1);
  return last === "" ? lastDrawn(line.slice(0, at)) : last;
}

/** How often a line was drawn over itself. */
export function redraws(line: string): number {
  let found = 0;
  for (let at = line.indexOf("\r"); at >= 0; at = line.indexOf("\r", at + 1)) found += 1;
  return found;
}

/** Text without any styling, as one would copy it. */
export const strip = (line: string): string => parse(line).map((run) => run.text).join("");

const ERROR = /\b(?:\w*Error|\w*Exception|error|ERROR|exception|Traceback|fatal|FATAL|critical|CRITICAL|panic|Killed|OOM)\b(?!s?["']?\s*[:=]\s*0\b)/;
const WARNING = /\b\w*warn(?:ing)?\b|\bdeprecat/i;

export function level(line: string): "error" | "warning" | "" {
  const text = line.length > 2000 ? line.slice(0, 2000) : line;
  if (ERROR.test(text)) return "error";
  return WARNING.test(text) ? "warning" : "";
}
