// Addresses: / · /j/ID · /compare · /clusters · /login, below whatever the page is served from. What a view shows stands
// in the query, so that every view is a link.

import { base } from "../api/client";

export interface Route {
  page: "jobs" | "job" | "compare" | "clusters" | "login" | "missing";
  ref: string;
  params: URLSearchParams;
}

function read(): Route {
  const path = decodeURI(location.pathname.slice(base.pathname.length)).replace(/\/$/, "");
  const params = new URLSearchParams(location.search);
  if (path === "" || path === "index.html") return { page: "jobs", ref: "", params };
  if (path.startsWith("j/")) return { page: "job", ref: path.slice(2), params };
  if (path === "compare" || path === "clusters" || path === "login") return { page: path, ref: "", params };
  return { page: "missing", ref: path, params };
}

class Router {
  route = $state.raw<Route>(read());

  constructor() {
    window.addEventListener("popstate", () => (this.route = read()));
    document.addEventListener("click", (event) => this.follow(event));
  }

  /** The address of a path of ours, for href. */
  href(path: string, params: Record<string, string | null | undefined> = {}): string {
    const url = new URL(path.replace(/^\//, ""), base);
    for (const [name, one] of Object.entries(params)) if (one) url.searchParams.set(name, one);
    return url.pathname + url.search;
  }

  go(path: string, params: Record<string, string | null | undefined> = {}): void {
    history.pushState(null, "", this.href(path, params));
    this.route = read();
    window.scrollTo(0, 0);
  }

  /** Change the query only; `push` where going back should undo it. */
  set(changes: Record<string, string | null | undefined>, push = false): void {
    const url = new URL(location.href);
    for (const [name, one] of Object.entries(changes)) {
      if (one) url.searchParams.set(name, one);
      else url.searchParams.delete(name);
    }
    if (url.href === location.href) return;
    history[push ? "pushState" : "replaceState"](null, "", url.pathname + url.search + url.hash);
    this.route = read();
  }

  private follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(base.pathname) || link.pathname.startsWith(`${base.pathname}api/`)) return;
    event.preventDefault();
    history.pushState(null, "", link.pathname + link.search + link.hash);
    this.route = read();
  }
}

export const router = new Router();
