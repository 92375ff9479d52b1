// A real server in a home of its own, real jobs, a real Chromium. Nothing here waits for a fixed time.

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

const ROOT = resolve(import.meta.dirname, "../..");
const BIN = join(ROOT, ".venv/bin");
export const PYTHON = join(BIN, "python");

export function chromiumPath(): string | null {
  const known = [process.env["HEADWAY_CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  return known.find((path): path is string => !!path && existsSync(path)) ?? null;
}

export class Home {
  readonly path = mkdtempSync(join(tmpdir(), "hw-page-"));
  readonly env = { ...process.env, HEADWAY_HOME: this.path, PATH: `${BIN}:${process.env["PATH"] ?? ""}`, HEADWAY_CHECK_ANSWERS: "1" };

  hw(...args: string[]): string {
    return execFileSync(join(BIN, "hw"), args, { env: this.env, cwd: this.path, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  json<T>(...args: string[]): T {
    return JSON.parse(this.hw(...args)) as T;
  }

  /** The id of a new job that runs this Python program. */
  submit(program: string, ...options: string[]): string {
    return this.json<{ id: string }>("submit", "--json", ...options, "python", "-c", program).id;
  }

  /** Runs a Python program of ours on this home, such as one that fills the store. */
  python(program: string): string {
    const env = { ...this.env, PYTHONPATH: ROOT };
    const done = spawnSync(PYTHON, ["-c", program], { env, cwd: ROOT, encoding: "utf8", maxBuffer: 1 << 28 });
    if (done.status !== 0) throw new Error(done.stderr);
    return done.stdout;
  }

  wait(id: string): void {
    for (;;) {
      const { state } = this.json<{ state: string }>("q", id, "--json");
      if (["succeeded", "failed", "stopped"].includes(state)) return;
    }
  }

  link(path = "/", role = "operate"): string {
    return this.json<{ url: string }>("page", "--role", role, "--json").url.replace(/(#[^/]*)\/.*$/, `$1${path}`);
  }

  close(): void {
    spawnSync(join(BIN, "hw"), ["server", "stop"], { env: this.env });
    rmSync(this.path, { recursive: true, force: true, maxRetries: 5 });
  }
}

export async function launch(): Promise<Browser> {
  const executablePath = chromiumPath();
  if (!executablePath) throw new Error("no Chromium here; Debian: apt-get install chromium");
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

export interface Opened {
  page: Page;
  /** Errors of the page, of the console and of its policies; empty when all is well. */
  troubles: string[];
  /** Every address that was asked for. */
  requests: string[];
}

export async function open(browser: Browser, home: Home, path = "/", options: BrowserContextOptions = {}, role = "operate"): Promise<Opened> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(12_000);
  const troubles: string[] = [];
  const requests: string[] = [];
  page.on("pageerror", (error) => troubles.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") troubles.push(`${message.text()} ${message.location().url}`);
  });
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(home.link(path, role));
  await page.waitForURL((url) => !url.pathname.endsWith("/login"));
  return { page, troubles, requests };
}
