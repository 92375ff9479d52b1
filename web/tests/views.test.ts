// Views that many jobs, many ranks and a colleague need: groups, facets, usage with its log, evidence, layouts, exports.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Home, launch, open } from "./support";

const SWEEP = (lr: number, seed: number): string => `
import headway as hw, math
hw.init(config={"lr": ${lr}, "seed": ${seed}})
for i in range(50):
    hw.log({"loss": ${lr} + math.exp(-i / 10) + ${seed} * 0.01, "acc": 1 - ${lr} - math.exp(-i / 10)}, step=i)
`;
const FAIL = `
import os, sys, time
if os.environ["RANK"] == "1":
    print("about to read", file=sys.stderr)
    raise FileNotFoundError(2, "No such file or directory", "shard-7.tar")
time.sleep(60)
`;
const BUSY = `
import time
for i in range(60):
    print("tick", i, flush=True)
    sum(range(200_000))
    time.sleep(0.05)
`;

let home: Home;
let browser: Browser;
const sweep: string[] = [];
let failed: string;
let busy: string;

beforeAll(async () => {
  home = new Home();
  for (const lr of [0.1, 0.3]) for (const seed of [0, 1]) sweep.push(home.submit(SWEEP(lr, seed), "--name", "sweep", "-e", "sweep"));
  failed = home.submit(FAIL, "--name", "broken", "-n", "2");
  busy = home.submit(BUSY, "--name", "busy", "-n", "2");
  for (const id of [...sweep, failed, busy]) home.wait(id);
  browser = await launch();
}, 300_000);

afterAll(async () => {
  await browser?.close();
  home?.close();
});

test("jobs are grouped by all settings but the seed, with mean and spread", async () => {
  const { page, troubles } = await open(browser, home, "/?q=exp:sweep&group=!seed");
  const rows = page.locator("tbody tr");
  await expect.poll(() => rows.count()).toBe(2);
  await page.getByRole("columnheader", { name: "lr", exact: true }).waitFor();
  expect(await rows.first().textContent()).toContain("±");
  await page.getByRole("link", { name: "0.3" }).click();
  await expect.poll(() => page.locator(".job .name").count()).toBe(2);
  expect(troubles).toEqual([]);
  await page.close();
});

test("a view is saved for everybody who sees the server", async () => {
  const first = await open(browser, home, "/?q=exp:sweep&group=experiment");
  await first.page.getByRole("button", { name: "save view" }).click();
  await first.page.getByLabel("Name").fill("my sweeps");
  await first.page.getByRole("button", { name: "Save", exact: true }).click();
  await first.page.getByRole("link", { name: "my sweeps" }).waitFor();
  await first.page.close();
  const second = await open(browser, home);
  await second.page.getByRole("link", { name: "my sweeps" }).click();
  await expect.poll(() => second.page.url()).toContain("group=experiment");
  await second.page.close();
});

test("charts are split by a setting, with one legend and a band over seeds", async () => {
  const { page, troubles } = await open(browser, home, "/compare?exp=sweep");
  await page.getByLabel("colour by").selectOption("lr");
  await page.getByLabel(/mean ± deviation/).check();
  const legend = page.getByRole("group", { name: "legend" });
  await expect.poll(() => legend.getByRole("button").allTextContents()).toEqual(["lr 0.1", "lr 0.3"]);
  await page.getByLabel("columns by").selectOption("seed");
  await page.locator("figcaption", { hasText: "seed 1" }).first().waitFor();
  await legend.getByRole("button", { name: "lr 0.3" }).click();
  await legend.getByRole("button", { name: "show all" }).waitFor();
  expect(troubles).toEqual([]);
  await page.close();
});

test("the best of a comparison is the first row, and settings are weighed", async () => {
  const { page } = await open(browser, home, "/compare?exp=sweep");
  await page.getByLabel("outcome").selectOption("loss");
  await expect.poll(() => page.locator("tbody tr").first().textContent()).toContain(sweep[0]?.slice(-5) ?? "");
  await page.getByRole("img", { name: /parallel coordinates of 4 jobs/ }).waitFor();
  await page.close();
});

test("a line of evidence opens that very line of the log", async () => {
  const { page } = await open(browser, home, `/j/${failed}?tab=why`);
  await page.locator("a.evidence", { hasText: "shard-7.tar" }).first().click();
  await page.locator(".line.marked", { hasText: "shard-7.tar" }).waitFor();
  expect(page.url()).toMatch(/rank=1.*line=\d+|line=\d+.*rank=1/);
  await page.close();
});

test("pointing at usage shows what was printed then, and a line shows where it is in the charts", async () => {
  const { page, troubles } = await open(browser, home, `/j/${busy}?tab=usage`);
  const cpu = page.getByRole("img", { name: /^CPU: 2 lines/ });
  await cpu.waitFor();
  const lines = page.getByRole("group", { name: "log lines around the cursor" });
  await lines.getByText("tick 59").first().waitFor();
  const area = await cpu.boundingBox();
  await page.mouse.move((area?.x ?? 0) + 90, (area?.y ?? 0) + 60);
  await lines.locator(".line.now").waitFor();
  await expect.poll(() => lines.textContent()).not.toContain("tick 59");
  expect(troubles).toEqual([]);
  await page.close();
});

test("a comparison is exported as one file that asks nobody for anything", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "hw-export-")), "compare.html");
  home.hw("page", "export", "-o", file, ...sweep);
  const page = await (await browser.newContext()).newPage();
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.goto(`file://${file}`);
  await page.getByRole("heading", { name: "Compare 4 jobs" }).waitFor();
  await page.getByRole("img", { name: /^loss: 4 lines/ }).waitFor();
  expect(asked.filter((url) => !url.startsWith("file:") && !url.startsWith("data:"))).toEqual([]);
  await page.close();
});
