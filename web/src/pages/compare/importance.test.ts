import { expect, test } from "vitest";
import { importance } from "./importance";

test("the setting that moved the outcome comes first", () => {
  const samples = [0.1, 0.1, 0.5, 0.5].map((lr, i) => ({ settings: { lr, seed: i % 2 }, outcome: lr * 10 + i * 0.01 }));
  const found = importance(samples, ["lr", "seed"]);
  expect(found[0]?.key).toBe("lr");
  expect(found[0]?.share).toBeGreaterThan(0.9);
  expect(found[1]?.share).toBeLessThan(0.1);
});

test("nothing is said of too few runs, or of outcomes that are all alike", () => {
  expect(importance([{ settings: {}, outcome: 1 }], ["a"])).toEqual([]);
  expect(importance([1, 2, 3].map((a) => ({ settings: { a }, outcome: 5 })), ["a"])).toEqual([]);
});
