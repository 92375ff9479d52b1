// How much of an outcome's spread a setting explains by itself: variance between groups of equal values over all of it
// (numbers in at most four bins). Crude and honest with few runs; nothing is fitted.

export interface Sample {
  settings: Record<string, unknown>;
  outcome: number;
}

export interface Weight {
  key: string;
  share: number;
}

const BINS = 4;

function groupOf(samples: Sample[], key: string): (sample: Sample) => string {
  const numbers = samples.map((one) => one.settings[key]).filter((one): one is number => typeof one === "number");
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  if (numbers.length !== samples.length || distinct.length <= BINS) return (sample) => JSON.stringify(sample.settings[key]) ?? "";
  const edges = Array.from({ length: BINS - 1 }, (_, i) => distinct[Math.floor(((i + 1) * distinct.length) / BINS)] as number);
  return (sample) => String(edges.filter((edge) => (sample.settings[key] as number) >= edge).length);
}

export function importance(all: Sample[], keys: string[]): Weight[] {
  const samples = all.filter((one) => Number.isFinite(one.outcome));
  if (samples.length < 3) return [];
  const mean = samples.reduce((sum, one) => sum + one.outcome, 0) / samples.length;
  const total = samples.reduce((sum, one) => sum + (one.outcome - mean) ** 2, 0);
  if (!(total > 0)) return [];
  const found: Weight[] = [];
  for (const key of keys) {
    const groups = new Map<string, number[]>();
    const name = groupOf(samples, key);
    for (const sample of samples) groups.set(name(sample), [...(groups.get(name(sample)) ?? []), sample.outcome]);
    if (groups.size < 2 || groups.size === samples.length) {
      if (groups.size === samples.length && samples.length > BINS) continue; // every run has its own value: says nothing
    }
    let between = 0;
    for (const outcomes of groups.values()) between += outcomes.length * (outcomes.reduce((a, b) => a + b, 0) / outcomes.length - mean) ** 2;
    found.push({ key, share: between / total });
  }
  return found.sort((a, b) => b.share - a.share);
}
