// The page with much of everything: in `make test-browser`.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Home, launch, open } from "./support";

const JOBS = 100_000;
const LINES = 3_000_000;
const NAMES = `
import headway as hw
for i in range(20):
    hw.log({f"layer{n // 100:02d}/grad{n % 100:03d}": i * n % 97 for n in range(3000)}, step=i)
`;
const SPIKE = `
import headway as hw, random
for i in range(300_000):
    hw.log({"loss": random.random() + (100 if i == 123_456 else 0)}, step=i)
`;
const LOG = `
import sys
for block in range(${LINES} // 10_000):
    sys.stdout.write("".join(f"line {block * 10_000 + i} of a long log\\n" for i in range(10_000)))
`;

let home: Home;
let browser: Browser;
let names: string;
let spike: string;
let log: string;
let ranks: string;

beforeAll(async () => {
  home = new Home();
  names = home.submit(NAMES, "--name", "names");
  spike = home.submit(SPIKE, "--name", "spike");
  log = home.submit(LOG, "--name", "log");
  ranks = home.submit("import os, sys; sys.exit(3 if os.environ['RANK'] == '37' else 0)", "--name", "ranks", "-n", "64");
  for (const id of [names, spike, log, ranks]) home.wait(id);
  home.hw("server", "stop");
  home.python(`import runpy, sys; sys.argv = ["fill", ${JSON.stringify(home.path)}, "${JOBS}"]; runpy.run_path("web/tests/fill_jobs.py", run_name="__main__")`);
  browser = await launch();
}, 600_000);

afterAll(async () => {
  await browser?.close();
  home?.close();
});

test("any of a hundred thousand jobs is one scroll away, and an answer is small", async () => {
  const { page, troubles } = await open(browser, home);
  let largest = 0;
  page.on("response", async (response) => {
    if (response.url().endsWith("/api/live")) largest = Math.max(largest, (await response.body().catch(() => Buffer.alloc(0))).length);
  });
  await page.locator(".job .name").first().waitFor();
  await page.locator(".scroll").evaluate((box) => (box.scrollTop = box.scrollHeight / 2));
  await page.waitForFunction(() => [...document.querySelectorAll(".job")].some((row) => row.querySelector(".name") && Number(row.getAttribute("aria-rowindex")) > 40_000));
  expect(largest).toBeLessThan(50_000);
  expect(troubles).toEqual([]);
  await page.close();
});

test("three thousand metrics are filtered by name, and only those in view are drawn", async () => {
  const { page } = await open(browser, home, `/j/${names}?tab=charts`);
  await page.getByRole("img", { name: /layer00\/grad000: 1 lines/ }).waitFor();
  expect(await page.locator(".chart").count()).toBeLessThan(40);
  await page.keyboard.press("/");
  await page.keyboard.type("layer17 grad042");
  await page.getByRole("img", { name: /layer17\/grad042: 1 lines/ }).waitFor();
  expect(await page.locator(".chart").count()).toBe(1);
  await page.close();
});

test("a spike of one sample is on the screen at every zoom", async () => {
  const { page } = await open(browser, home, `/j/${spike}?tab=charts`);
  const highest = (): Promise<number> =>
    page.evaluate(async () => {
      const asked = { jobs: [location.pathname.split("/").pop()], names: ["loss"], pixels: 300, low: null as number | null, high: null as number | null };
      let least = Infinity;
      for (const [low, high] of [[null, null], [100_000, 200_000], [123_000, 124_000]] as const) {
        const answer = await fetch("/api/charts", { method: "POST", body: JSON.stringify({ ...asked, low, high }) });
        const buffer = await answer.arrayBuffer();
        const length = new DataView(buffer).getUint32(4, true);
        const values = new Float64Array(buffer, 8 + length);
        least = Math.min(least, Math.max(...values.subarray(values.length / 2)));
      }
      return least;
    });
  expect(await highest()).toBeGreaterThan(100);
  await page.close();
});

test("any line of millions is shown by its number, and j moves one line there, too", async () => {
  const { page } = await open(browser, home, `/j/${log}?tab=logs&line=2345678`);
  await page.locator(".line.marked", { hasText: "line 2345677 of" }).waitFor();
  const first = async (): Promise<number> => Number(await page.locator(".line .n").first().textContent());
  const before = await first();
  await page.keyboard.press("j");
  await expect.poll(first).toBe(before + 1);
  await page.keyboard.press("End");
  await page.getByText(`line ${LINES - 1} of`).waitFor();
  await page.close();
});

test("the rank that failed stands out among many", async () => {
  const { page } = await open(browser, home, `/j/${ranks}?tab=tasks`);
  await page.getByRole("button", { name: /rank 37: exit code 3/ }).click();
  await page.getByText("its log").waitFor();
  await page.close();
});
