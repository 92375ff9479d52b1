// One hue per job, kept in every view. Ranks and attempts of a job share it.

function hash(text: string): number {
  let found = 2166136261;
  for (let i = 0; i < text.length; i++) found = Math.imul(found ^ text.charCodeAt(i), 16777619);
  return found >>> 0;
}

/** Hues that can be told apart, without the red that means: somebody must look. */
const HUES = [255, 150, 60, 310, 200, 105, 280, 175, 85, 335, 230, 130];

export function jobColour(id: string, dark: boolean): string {
  const number = hash(id);
  const hue = HUES[number % HUES.length] as number;
  const light = (dark ? 0.74 : 0.55) + (((number >>> 8) % 3) - 1) * 0.05;
  return `oklch(${light} 0.14 ${hue})`;
}

/** Colours for lines that belong together: ranks, processes, metrics of one chart. */
export function lineColour(index: number, dark: boolean): string {
  const hue = HUES[index % HUES.length] as number;
  return `oklch(${dark ? 0.76 : 0.55} 0.14 ${hue})`;
}
