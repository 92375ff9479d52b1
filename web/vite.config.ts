import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// Everything is named relative to the page, so that it works below any path of a reverse proxy.
// HEADWAY_PAGE_OUT: where the wheel's build puts the files.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: process.env["HEADWAY_PAGE_OUT"] ?? "../src/headway/server/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 300,
  },
  test: {
    projects: [
      { test: { name: "unit", include: ["src/**/*.test.ts"], environment: "node" } },
      {
        test: {
          name: "browser",
          include: ["tests/**/*.test.ts"],
          environment: "node",
          testTimeout: 60_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
