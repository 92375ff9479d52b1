import { describe, expect, test } from "vitest";
import { joined, panelsOf, spreadOf, valuesOf } from "./facet";

const CONFIGS = new Map<string, Record<string, unknown>>([
  ["a", { lr: 0.1, seed: 0 }], ["b", { lr: 0.1, seed: 1 }], ["c", { lr: 10, seed: 0 }], ["d", { seed: 1 }],
]);
const JOBS = ["a", "b", "c", "d"];
const line = (x: number[], y: number[]): { x: Float64Array; y: Float64Array } => ({ x: Float64Array.from(x), y: Float64Array.from(y) });

describe("facets", () => {
  test("values of a setting go by size, and what is not set has its own", () => expect(valuesOf(CONFIGS, JOBS, "lr")).toEqual(["0.1", "10", "not set"]));
  test("every job is in exactly one panel", () => {
    const { panels, columns } = panelsOf(CONFIGS, JOBS, "seed", "lr");
    expect(columns).toBe(3);
    expect(panels).toHaveLength(6);
    expect(panels.flatMap((panel) => [...panel.jobs]).sort()).toEqual(JOBS);
    expect(panels[0]?.title).toBe("seed 0 · lr 0.1");
  });
  test("without settings there is one panel with all", () => expect(panelsOf(CONFIGS, JOBS, "", "").panels).toEqual([{ title: "", jobs: new Set(JOBS) }]));
});

describe("the spread of a group", () => {
  test("mean and deviation, between points of either line", () => {
    const spread = spreadOf([line([0, 2, 4], [0, 2, 4]), line([0, 4], [2, 6])]);
    expect([...spread.x]).toEqual([0, 2, 4]);
    expect([...spread.mean]).toEqual([1, 3, 5]);
    expect((spread.high[1] as number) - (spread.mean[1] as number)).toBeCloseTo(1);
  });
  test("a line says nothing beyond its ends", () => {
    const spread = spreadOf([line([0, 1, 2], [1, 1, 1]), line([0, 1], [3, 3])]);
    expect([...spread.mean]).toEqual([2, 2, 1]);
  });
  test("NaN of one does not take the others with it", () => expect([...spreadOf([line([0, 1], [NaN, 1]), line([0, 1], [5, 1])]).mean]).toEqual([5, 1]));
  test("no lines, no places", () => expect(spreadOf([]).x).toHaveLength(0));
});

test("what a restart did again is apart from what it went on from", () => {
  const x = Float64Array.from([0, 10, 20, 30]);
  expect([joined(x, null), joined(x, 20), joined(x, 35)]).toEqual([4, 2, 4]);
});
