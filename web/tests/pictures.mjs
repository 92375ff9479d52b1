// Pictures of the page for the docs, from jobs that really ran; called by tools/pictures.sh with HEADWAY_HOME set.
//   node pictures.mjs HW CHROMIUM FOLDER

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [hw, executablePath, folder] = process.argv.slice(2);
const ask = (...args) => JSON.parse(execFileSync(hw, [...args, "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
const newest = (name) => ask("ls", "--match", `^${name}-`)[0].id;
const link = ask("page").url;
const { origin } = new URL(link);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const first = await browser.newContext();
const login = await first.newPage();
await login.goto(link);
await login.waitForURL((url) => !url.pathname.endsWith("/login"));
const storageState = await first.storageState();

async function picture(name, path, ready, { dark = false, width = 1280, height = 800, before } = {}) {
  const context = await browser.newContext({ storageState, viewport: { width, height }, colorScheme: dark ? "dark" : "light" });
  const page = await context.newPage();
  await page.goto(origin + path);
  await page.locator(ready).first().waitFor();
  if (before) await before(page);
  await page.waitForTimeout(1500); // the last curves are drawn
  await page.screenshot({ path: join(folder, `${name}.png`) });
  console.log(`docs/images/${name}.png`);
  await context.close();
}

const over = (selector, x, y) => async (page) => {
  const box = await page.locator(selector).first().boundingBox();
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
};

await picture("page-jobs", "/", ".job .spark path");
await picture("page-job", `/j/${newest("resnet")}?tab=charts`, ".chart .box[aria-label*='1 lines']", { dark: true, before: over(".chart .box", 0.4, 0.5) });
await picture("page-logs", `/j/${newest("voc20")}?tab=logs`, ".line .text");
await picture("page-why", `/j/${newest("hang")}?tab=why`, ".tree", { height: 720 });
await picture("page-usage", `/j/${newest("vit")}?tab=usage`, "figure canvas", { before: over("figure:nth-of-type(2) .box", 0.5, 0.5) });
await picture("page-compare", "/compare?exp=sweep", ".chart .box[aria-label*='lines']", { height: 1040 });
await browser.close();
