// The core of the page against a real server: in `make test`.

import { join } from "node:path";
import axeSource from "axe-core";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Home, launch, open } from "./support";

const HOSTILE = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;
const TRAIN = `
import headway as hw, math, sys
hw.init(config={"lr": 0.1, "model": {"name": "resnet"}})
for i in range(400):
    value = float("nan") if 200 <= i < 210 else math.exp(-i / 100)
    if i == 123: value += 50
    hw.log({"train/loss": value, "val/acc": i / 400}, step=i)
    print(f"step {i} loss {value:.3f}")
print("\\x1b[31mred text\\x1b[0m plain")
print(${JSON.stringify(HOSTILE)})
`;
const FAIL = `
print("before the trouble")
raise ValueError("the learning rate is negative")
`;
const LIVE = `
import headway as hw, time, pathlib, sys
i = 0
while not pathlib.Path("stop").exists():
    hw.log({"live/loss": float(i)}, step=i); print("live line", i, flush=True)
    i += 1; time.sleep(0.05)
`;

let home: Home;
let browser: Browser;
let trained: string;
let failed: string;
let running: string;

beforeAll(async () => {
  home = new Home();
  trained = home.submit(TRAIN, "--name", "trained", "-e", "core", "--tag", "good");
  failed = home.submit(FAIL, "--name", "broken", "-e", "core");
  running = home.submit(LIVE, "--name", "alive");
  home.wait(trained);
  home.wait(failed);
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  if (running) home.hw("abort", running);
  home?.close();
});

describe("login", () => {
  test("a browser without a login sees how to get one, and nothing of any job", async () => {
    const page = await (await browser.newContext()).newPage();
    const url = new URL(home.link());
    const answer = await page.goto(`${url.origin}/j/${trained}`);
    expect(answer?.status()).toBe(401);
    await page.getByText("hw page").waitFor();
    expect(await page.content()).not.toContain("trained");
    await page.close();
  });

  test("a link works once", async () => {
    const link = home.link();
    const first = await (await browser.newContext()).newPage();
    await first.goto(link);
    await first.getByRole("table", { name: "jobs" }).waitFor();
    const second = await (await browser.newContext()).newPage();
    await second.goto(link);
    await second.getByText("not valid").waitFor();
  });

  test("who may only look has no buttons that act", async () => {
    const { page } = await open(browser, home, `/j/${running}`, {}, "read");
    await page.getByRole("heading", { name: /alive/ }).waitFor();
    expect(await page.getByRole("button", { name: "Abort" }).count()).toBe(0);
    await page.close();
  });
});

describe("jobs", () => {
  test("the table shows state, reason and metrics, and asks nobody outside", async () => {
    const { page, troubles, requests } = await open(browser, home);
    await page.getByRole("link", { name: /trained/ }).waitFor();
    await page.getByText("ValueError: the learning rate is negative").first().waitFor();
    await page.getByRole("columnheader", { name: /train\/loss/ }).first().waitFor();
    const origin = new URL(page.url()).origin;
    expect(requests.filter((one) => !one.startsWith(origin))).toEqual([]);
    expect(troubles).toEqual([]);
    await page.close();
  });

  test("a search narrows the table and stands in the address", async () => {
    const { page } = await open(browser, home);
    await page.keyboard.press("/");
    await page.keyboard.type("state:failed");
    await page.getByRole("link", { name: /trained/ }).waitFor({ state: "detached" });
    await page.getByRole("link", { name: /broken/ }).waitFor();
    expect(page.url()).toContain("q=state%3Afailed");
    await page.reload();
    await page.getByRole("link", { name: /broken/ }).waitFor();
    expect(await page.getByRole("link", { name: /trained/ }).count()).toBe(0);
    await page.close();
  });

  test("config and metrics choose jobs", async () => {
    const { page } = await open(browser, home, "/?q=config.lr%3C0.5");
    await page.getByRole("link", { name: /trained/ }).waitFor();
    expect(await page.getByRole("link", { name: /broken/ }).count()).toBe(0);
    await page.goto(new URL("/?q=metric.val/acc%3E2", page.url()).href);
    await page.getByText("No job fits").waitFor();
    await page.close();
  });

  test("a job that starts while the table is open appears by itself", async () => {
    const { page } = await open(browser, home);
    await page.getByRole("link", { name: /trained/ }).waitFor();
    const id = home.submit("print('hello')", "--name", "newcomer");
    await page.getByRole("link", { name: /newcomer/ }).waitFor({ timeout: 10_000 });
    home.wait(id);
    await page.close();
  });

  test("keys move, open and go back", async () => {
    const { page } = await open(browser, home, "/?q=exp:core");
    await page.getByRole("link", { name: /trained/ }).waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/j\/trained-/);
    await page.keyboard.press("3");
    await page.getByRole("log").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("table", { name: "jobs" }).waitFor();
    await page.close();
  });
});

describe("a job", () => {
  test("every tab opens without an error", async () => {
    const { page, troubles } = await open(browser, home, `/j/${trained}`);
    for (const name of ["Charts", "Logs", "Usage", "Tasks", "Config", "Code and environment", "Files", "Why", "Overview"]) {
      await page.getByRole("tab", { name }).click();
      await page.getByRole("tabpanel").waitFor();
    }
    expect(troubles).toEqual([]);
    await page.close();
  });

  test("config shows nested settings", async () => {
    const { page } = await open(browser, home, `/j/${trained}?tab=config`);
    await page.getByRole("cell", { name: "model.name" }).waitFor();
    await page.close();
  });

  test("a line of the log is text, whatever it holds", async () => {
    const { page, troubles } = await open(browser, home, `/j/${trained}?tab=logs`);
    await page.getByText(HOSTILE).waitFor();
    expect(await page.locator(".log img, .log script").count()).toBe(0);
    expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
    await page.locator(".log .f1", { hasText: "red text" }).waitFor();
    expect(troubles).toEqual([]);
    await page.close();
  });

  test("a link to a line shows that line, and j moves exactly one", async () => {
    const { page } = await open(browser, home, `/j/${trained}?tab=logs&line=100`);
    await page.locator(".line.marked", { hasText: "step 99 loss" }).waitFor();
    const first = (): Promise<string | null> => page.locator(".line .n").first().textContent();
    const before = Number(await first());
    await page.keyboard.press("j");
    await expect.poll(async () => Number(await first())).toBe(before + 1);
    await page.close();
  });

  test("a search in the log says how many lines there are", async () => {
    const { page } = await open(browser, home, `/j/${trained}?tab=logs`);
    await page.getByText("red text").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("step 1");
    await page.keyboard.press("Enter");
    await page.getByText(/of 111/).waitFor();
    await page.close();
  });

  test("the first error is one key away", async () => {
    const { page } = await open(browser, home, `/j/${failed}?tab=logs`);
    await page.getByText("before the trouble").waitFor();
    await page.keyboard.press("e");
    await page.locator(".line.marked", { hasText: "Traceback" }).waitFor();
    await page.close();
  });

  test("new points and lines arrive by themselves", async () => {
    const { page, requests } = await open(browser, home, `/j/${running}?tab=charts`);
    const chart = page.getByRole("img", { name: /live\/loss/ });
    await chart.waitFor();
    const last = async (): Promise<number> => Number(/last value ([\d.]+)/.exec((await chart.getAttribute("aria-label")) ?? "")?.[1] ?? -1);
    const before = await last();
    const asked = requests.filter((one) => one.endsWith("/api/charts")).length;
    await expect.poll(last, { timeout: 15_000 }).toBeGreaterThan(before + 10);
    expect(requests.filter((one) => one.endsWith("/api/charts")).length - asked).toBeLessThanOrEqual(1);
    await page.getByRole("tab", { name: "Logs" }).click();
    const line = async (): Promise<number> => Number(/live line (\d+)/.exec((await page.locator(".line .text").last().textContent()) ?? "")?.[1] ?? -1);
    const seen = await line();
    await expect.poll(line, { timeout: 15_000 }).toBeGreaterThan(seen + 3);
    await page.close();
  });

  test("a restarted server is not noticed", async () => {
    const { page } = await open(browser, home, `/j/${running}?tab=logs`);
    const line = async (): Promise<number> => Number(/live line (\d+)/.exec((await page.locator(".line .text").last().textContent()) ?? "")?.[1] ?? -1);
    await expect.poll(line).toBeGreaterThan(0);
    const port = new URL(page.url()).port;
    home.hw("server", "stop");
    home.hw("ls");
    expect(new URL(home.link()).port).toBe(port);
    const seen = await line();
    await expect.poll(line, { timeout: 30_000 }).toBeGreaterThan(seen + 3);
    await page.close();
  });

  test("compare shows what differs", async () => {
    const other = home.submit(TRAIN.replace('"lr": 0.1', '"lr": 0.7'), "--name", "trained", "-e", "core");
    home.wait(other);
    const short = (id: string): string => id.slice(id.lastIndexOf("-") + 1);
    const { page, troubles } = await open(browser, home, `/compare?ids=${short(trained)},${short(other)}`);
    await page.getByRole("columnheader", { name: "lr", exact: true }).waitFor();
    expect(await page.getByRole("columnheader", { name: "model.name" }).count()).toBe(0);
    await page.getByRole("img", { name: /train\/loss: 2 lines/ }).waitFor();
    expect(troubles).toEqual([]);
    await page.close();
  });
});

test("an exported job is one file that asks nobody for anything", async () => {
  const file = join(home.path, "run.html");
  home.hw("page", "export", trained, "-o", file);
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(12_000);
  const troubles: string[] = [];
  const requests: string[] = [];
  page.on("pageerror", (error) => troubles.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") troubles.push(message.text());
  });
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(`file://${file}`);
  await page.getByRole("heading", { name: /trained/ }).waitFor();
  await page.getByRole("tab", { name: "Charts" }).click();
  await page.getByRole("img", { name: /train\/loss: 1 lines/ }).waitFor();
  await page.getByRole("tab", { name: "Logs" }).click();
  await page.getByText(HOSTILE).waitFor();
  expect(await page.locator(".log img, .log script").count()).toBe(0);
  expect(requests.filter((one) => !one.startsWith(`file://${file}`))).toEqual([]);
  expect(troubles).toEqual([]);
  await page.close();
});

describe("for everybody", () => {
  test.each([
    ["/", "light"], [() => `/j/${trained}`, "dark"], [() => `/j/${trained}?tab=logs`, "light"], [() => `/j/${trained}?tab=charts`, "dark"],
    [() => `/j/${failed}?tab=why`, "light"], ["/clusters", "dark"],
  ] as const)("axe finds nothing serious at %s in %s", async (path, colorScheme) => {
    const { page } = await open(browser, home, typeof path === "string" ? path : path(), { colorScheme, bypassCSP: true });
    await page.getByRole("main").waitFor();
    await page.waitForLoadState("load");
    await page.evaluate(axeSource.source);
    const found = await page.evaluate(() => (window as unknown as { axe: { run: () => Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }> } }).axe.run());
    const serious = found.violations.filter((one) => one.impact === "serious" || one.impact === "critical");
    expect(serious.map((one) => `${one.id}: ${one.nodes[0]?.html}`)).toEqual([]);
    await page.close();
  });

  test("a phone reads, searches and aborts", async () => {
    const id = home.submit(LIVE, "--name", "pocket");
    const { page, troubles } = await open(browser, home, "/", { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
    await page.getByRole("link", { name: /pocket/ }).tap();
    await page.getByRole("heading", { name: /pocket/ }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth)).toBe(true);
    await page.getByRole("button", { name: "Abort" }).tap();
    await page.getByRole("button", { name: "Abort it" }).tap();
    await page.getByText(/^stopp(ing|ed)$/).first().waitFor({ timeout: 20_000 });
    home.wait(id);
    expect(troubles).toEqual([]);
    await page.close();
  });
});
