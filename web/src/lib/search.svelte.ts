// The search of the jobs: one line, which is also `q` in the address bar.

import { router } from "./router.svelte";

const TYPING_MS = 200;

class Search {
  private typed = $state<string | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;

  get text(): string {
    return this.typed ?? router.route.params.get("q") ?? "";
  }

  type(text: string): void {
    this.typed = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.submit(), TYPING_MS);
  }

  submit(): void {
    clearTimeout(this.timer);
    if (this.typed === null) return;
    const text = this.typed;
    this.typed = null;
    if (router.route.page === "jobs") router.set({ q: text });
    else router.go("/", { q: text });
  }

  set(text: string): void {
    this.typed = null;
    if (router.route.page === "jobs") router.set({ q: text }, true);
    else router.go("/", { q: text });
  }

  /** Replace the term of one key, e.g. state:…, and keep the rest. */
  with(key: string, value: string | null): void {
    const rest = this.text.split(/\s+/).filter((word) => word && !word.startsWith(`${key}:`));
    this.set([...rest, ...(value ? [`${key}:${value}`] : [])].join(" "));
  }
}

export const search = new Search();
