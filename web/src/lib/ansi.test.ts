import { expect, test } from "vitest";
import { lastDrawn, level, nearest, parse, redraws, strip } from "./ansi";

test("colours become classes of ours", () => {
  expect(parse("\u001b[31mred\u001b[0m plain")).toEqual([{ text: "red", style: "f1" }, { text: " plain", style: "" }]);
  expect(parse("\u001b[1;4;92mx")[0]?.style).toBe("f10 bold under");
  expect(parse("\u001b[38;5;196mx")[0]?.style).toMatch(/^f(1|9)$/);
  expect(parse("\u001b[38;2;0;0;255mx")[0]?.style).toMatch(/^f(4|12)$/);
  expect(nearest(250, 250, 250)).toBe("15");
});

test("what is not a colour cannot act: titles, links, cursors, C1, direction marks", () => {
  expect(strip("\u001b]0;title\u0007a\u001b[2Jb\u001b[10;5Hc")).toBe("\ufffdabc");
  expect(strip("\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\")).toBe("\ufffdlink\ufffd");
  expect(strip("a\u009b31mb")).toBe("a\ufffd31mb");
  expect(strip("a\u202eb")).toBe("a\ufffdb");
});

test("a line that was drawn over itself shows its last picture", () => {
  expect(lastDrawn("10 %\r50 %\r100 %")).toBe("100 %");
  expect(lastDrawn("50 %\r")).toBe("50 %");
  expect(redraws("a\rb\rc")).toBe(2);
});

test("errors and warnings are told apart", () => {
  const lines = ["ValueError: x", "ERROR: x", "UserWarning: y", "step 1", "errors: 0", "error: 0", "Traceback (most recent call last):"];
  expect(lines.map(level)).toEqual(["error", "error", "warning", "", "", "", "error"]);
});
