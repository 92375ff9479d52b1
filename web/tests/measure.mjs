// Measures the page in Chromium and prints JSON; called by bench/cases/page.py with HEADWAY_HOME set.
//   node measure.mjs HW CHROMIUM ROUNDS   (jobs named fifty, names, million and log are there)

import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const [hw, executablePath, rounds] = process.argv.slice(2);
const ask = (...args) => JSON.parse(execFileSync(hw, args, { encoding: "utf8" }));
const id = Object.fromEntries(["fifty", "names", "million", "log"].map((name) => [name, ask("ls", "--json", "--match", `^${name}-`)[0].id]));
const link = ask("page", "--json").url;
const { origin } = new URL(link);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
await page.goto(link);
await page.waitForURL((url) => !url.pathname.endsWith("/login"));
const found = {};

async function opened(name, path, ready, argument = null) {
  for (let round = 0; round < Number(rounds); round++) {
    const begun = performance.now();
    await page.goto(origin + path, { waitUntil: "commit" });
    await page.waitForFunction(ready, argument, { polling: "raf" });
    (found[name] ??= []).push(performance.now() - begun);
  }
}

/** The longest time between two pictures while something scrolls. */
async function scrolled(name, what, by) {
  const worst = await page.evaluate(
    async ([selector, step]) => {
      const box = selector ? document.querySelector(selector) : document.scrollingElement;
      let longest = 0;
      let last = performance.now();
      for (let i = 0; i < 200; i++) {
        box.scrollTop = i * step;
        await new Promise(requestAnimationFrame);
        longest = Math.max(longest, performance.now() - last);
        last = performance.now();
      }
      return longest;
    },
    [what, by],
  );
  (found[name] ??= []).push(worst);
}

const rows = () => document.querySelectorAll(".job .name").length > 5;
const charts = () => {
  const boxes = [...document.querySelectorAll(".chart .box")].slice(0, 4);
  return boxes.length > 0 && boxes.every((box) => /: [1-9]\d* lines/.test(box.getAttribute("aria-label")));
};
await opened("jobs_rows_ms", "/", rows);
await scrolled("jobs_frame_ms", ".scroll", 900);
await opened("fifty_ms", `/j/${id.fifty}?tab=charts`, charts);
await opened("million_ms", `/j/${id.million}?tab=charts`, charts);
await opened("names_ms", `/j/${id.names}?tab=charts`, charts);
await scrolled("names_frame_ms", "", 60);
for (const line of [5_000_000, 1, 2_345_678]) {
  await opened("line_ms", `/j/${id.log}?tab=logs&line=${line}`, (n) => [...document.querySelectorAll(".line.marked .text")].some((one) => one.textContent.includes(`line ${n - 1} `)), line);
}
console.log(JSON.stringify(found));
await browser.close();
