import { describe, expect, test } from "vitest";
import type { State } from "../api/types";
import { bytes, differing, duration, flatten, plain, value, why } from "./format";

describe("numbers", () => {
  test.each([
    [0.3121234, "0.3121"], [1.2e-5, "1.20e−5"], [0, "0"], [-1.5, "−1.5"], [12345, "12345"], [1.5e9, "1.50e9"],
    ["NaN", "NaN"], ["Infinity", "∞"], ["-Infinity", "−∞"], [null, "–"], [NaN, "NaN"],
  ] as const)("%s is written %s", (raw, text) => expect(value(raw)).toBe(text));
  test("sizes and durations have few figures", () => {
    expect(bytes(1536)).toBe("1.5 KiB");
    expect(bytes(null)).toBe("–");
    expect([duration(5), duration(187), duration(9669), duration(300_000)]).toEqual(["5 s", "3:07", "2:41:09", "3 d 11 h"]);
  });
});

test("a state always has its reason beside it", () => {
  const now = Date.parse("2026-01-01T00:10:00Z");
  const of = (state: State, more: object): string => why({ state, ...more }, now);
  expect(of("waiting", { waiting: { ahead: 2 } })).toBe("2 ahead");
  expect(of("waiting", { waiting: { after: ["a-12345"] } })).toBe("waits for 12345");
  expect(of("unknown", { heard_at: "2026-01-01T00:07:00Z" })).toBe("last heard 3 min ago");
  expect(of("failed", { cause: { text: "out of memory" } })).toBe("out of memory");
  expect(of("failed", { signal: 9 })).toBe("signal 9");
  expect(of("running", {})).toBe("");
});

test("commands that begin alike show only what differs", () => {
  expect(differing(["python train.py --lr 0.1", "python train.py --lr 0.2"])).toEqual(["… 0.1", "… 0.2"]);
  expect(differing(["a b"])).toEqual(["a b"]);
});

test("nested settings become one level", () => {
  expect(flatten({ a: { b: 1, c: [1] }, d: {} })).toEqual({ "a.b": 1, "a.c": [1], d: {} });
  expect(plain([1, "x"])).toBe('[1,"x"]');
});
