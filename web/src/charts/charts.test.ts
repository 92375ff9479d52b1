import { describe, expect, test } from "vitest";
import { decodeLines, type Line } from "../api/charts";
import { extend } from "./group.svelte";
import { layout, PINNED } from "./layout";
import { fit, label, nearestIndex, place, smooth, ticks, timeTicks, valueAt } from "./scale";

describe("axes", () => {
  test("ticks are round and lie on the axis", () => {
    expect(ticks({ low: 0, high: 1, log: false }, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks({ low: 0.001, high: 100, log: true }, 6)).toEqual([0.001, 0.01, 0.1, 1, 10, 100]);
    expect(ticks({ low: 1, high: 1, log: false }, 5)).toEqual([]);
    expect(timeTicks({ low: 1_000_000_000, high: 1_000_003_600, log: false }, 6).every((one) => one % 300 === 0)).toBe(true);
  });
  test("a place and its value are each other's inverse", () => {
    for (const log of [false, true]) {
      const scale = { low: 0.5, high: 200, log };
      expect(valueAt(scale, place(scale, 20))).toBeCloseTo(20);
    }
    expect(place({ low: 1, high: 10, log: true }, -1)).toBeNaN();
  });
  test("an axis without values, or with one, is still an axis", () => {
    expect(fit(Infinity, -Infinity, false)).toEqual({ low: 0, high: 1, log: false });
    const one = fit(3, 3, false);
    expect(one.high).toBeGreaterThan(one.low);
  });
  test("labels are short", () => expect([label(12000), label(3.4e6), label(0.25), label(1e-5)]).toEqual(["12k", "3.4M", "0.25", "1e−5"]));
});

describe("lines", () => {
  test("smoothing keeps gaps, and does not begin at zero", () => {
    const found = smooth([4, 4, NaN, 4], 0.9);
    expect(found[0]).toBeCloseTo(4);
    expect(found[2]).toBeNaN();
    expect(found[3]).toBeCloseTo(4);
  });
  test("the nearest point is found", () => expect([nearestIndex([1, 2, 10], 7), nearestIndex([], 1), nearestIndex([5], 9)]).toEqual([2, -1, 0]));
  test("points are appended without copying the line each time", () => {
    const line = { x: new Float64Array([1]), y: new Float64Array([2]) } as Line;
    extend(line, [2, 3], [4, 5]);
    const buffer = line.x.buffer;
    extend(line, [4], [6]);
    expect([...line.x]).toEqual([1, 2, 3, 4]);
    expect([...line.y]).toEqual([2, 4, 5, 6]);
    expect(line.x.buffer).toBe(buffer);
  });
  test("the binary answer is read without copies", () => {
    const head = JSON.stringify({ series: [{ job: "a", key: 1, name: "loss", rank: 0, attempt: 1, count: 2, rows: 2, first: 0, last: 1 }] });
    const text = new TextEncoder().encode(head + " ".repeat((8 - (head.length % 8)) % 8));
    const buffer = new ArrayBuffer(8 + text.length + 32);
    new Uint8Array(buffer).set(new TextEncoder().encode("HWP1"));
    new DataView(buffer).setUint32(4, text.length, true);
    new Uint8Array(buffer).set(text, 8);
    new Float64Array(buffer, 8 + text.length).set([0, 1, 5, NaN]);
    const [line] = decodeLines(buffer);
    expect([...(line?.x ?? [])]).toEqual([0, 1]);
    expect(line?.y[1]).toBeNaN();
    expect(() => decodeLines(new ArrayBuffer(16))).toThrow("not a chart");
  });
});

describe("layout", () => {
  const names = ["loss", "train/a", "train/b", "train/c", "train/d", "train/e", "train/f", "train/g", "val/a", "val/b"];
  test("sections by prefix, pins first, rows of charts", () => {
    const { items, height } = layout(names, ["val/a"], 2, new Set());
    expect(items.filter((one) => one.kind === "section").map((one) => (one.kind === "section" ? one.name : ""))).toEqual([PINNED, "metrics", "train", "val"]);
    expect(items.filter((one) => one.kind === "row")).toHaveLength(7);
    const last = items[items.length - 1];
    expect(last && last.top + last.height).toBe(height);
  });
  test("few names need no headings", () => expect(layout(["loss", "train/a", "val/a"], [], 2, new Set()).items.map((one) => one.kind)).toEqual(["row", "row"]));
  test("a metric in panels is a section of its own", () => {
    const { items } = layout(["loss", "val/a"], [], 2, new Set(), 3);
    expect(items.map((one) => (one.kind === "section" ? one.name : one.cells.length))).toEqual(["loss", 2, 1, "val/a", 2, 1]);
  });
  test("a closed section has no rows", () => expect(layout(names, [], 2, new Set(["train"])).items.filter((one) => one.kind === "row")).toHaveLength(2));
  test("three thousand names are laid out at once", () => expect(layout(Array.from({ length: 3000 }, (_, i) => `s${i % 30}/m${i}`), [], 3, new Set()).items.length).toBe(30 + 30 * 34));
});
