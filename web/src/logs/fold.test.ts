import { expect, test } from "vitest";
import { rows, shape } from "./fold";

const lines = ["start", "step 1 loss 0.5", "step 2 loss 0.4", "step 3 loss 0.3", "end", "end 2"];

test("lines that differ only in numbers are one row", () => {
  expect(rows(0, lines.length, 10, true, (n) => lines[n])).toEqual([
    { first: 0, lines: 1 }, { first: 1, lines: 3 }, { first: 4, lines: 1 }, { first: 5, lines: 1 },
  ]);
});

test("without folding each line is a row, known or not", () => {
  expect(rows(2, 6, 3, false, () => undefined)).toEqual([{ first: 2, lines: 1 }, { first: 3, lines: 1 }, { first: 4, lines: 1 }]);
});

test("a shape forgets numbers and times", () => expect(shape("12:04:31 step 7")).toBe(shape("12:04:32 step 8123")));
