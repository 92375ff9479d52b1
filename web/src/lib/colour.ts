// One hue per job, kept in every view. Ranks and attempts of a job share it.

import { recallJson, rememberJson } from "./memory";

/** Hues that can be told apart, without the red that means: somebody must look. */
const HUES = [255, 150, 60, 310, 200, 105, 280, 175, 85, 335, 230, 130];
const KEPT = 400;
const GOLDEN = 0.381966; // of the span: every new hue falls into the widest gap
const FIRST_HUE = 50;
const HUE_SPAN = 300; // from amber round to magenta

// In the order in which this browser first saw them: jobs that are seen together get hues that are far apart.
let seen: Map<string, number> | null = null;
let next = 0;
let saving: ReturnType<typeof setTimeout> | undefined;

function numberOf(id: string): number {
  if (!seen) {
    seen = new Map(recallJson<[string, number][]>("hues", []));
    next = Math.max(-1, ...seen.values()) + 1;
  }
  let found = seen.get(id);
  if (found === undefined) {
    found = next++;
    seen.set(id, found);
    const known = seen;
    clearTimeout(saving);
    saving = setTimeout(() => rememberJson("hues", [...known].slice(-KEPT)), 500);
  }
  return found;
}

export function jobColour(id: string, dark: boolean): string {
  const number = numberOf(id);
  const hue = FIRST_HUE + ((210 + number * GOLDEN * HUE_SPAN) % HUE_SPAN);
  return `oklch(${dark ? 0.76 : 0.56} 0.14 ${hue.toFixed(0)})`;
}

/** Colours for lines that belong together: ranks, processes, metrics of one chart. */
export function lineColour(index: number, dark: boolean): string {
  const hue = HUES[index % HUES.length] as number;
  return `oklch(${dark ? 0.76 : 0.55} 0.14 ${hue})`;
}
