// Addresses: / · /j/ID · /compare · /clusters · /login, below whatever the page is served from. What a view shows stands
// in the query, so that every view is a link.

import { base } from "../api/client";
import { embedded } from "../api/embedded";

export interface Route {
  page: "jobs" | "job" | "compare" | "clusters" | "login" | "missing";
  ref: string;
  params: URLSearchParams;
}

function read(): Route {
  if (embedded) return { page: embedded.job ? "job" : "compare", ref: embedded.job?.id ?? "", params: new URLSearchParams(location.hash.slice(1)) };
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
    if (embedded) window.addEventListener("hashchange", () => (this.route = read()));
    if (!embedded) document.addEventListener("click", (event) => this.follow(event));
  }

  /** The address of a path of ours, for href. */
  href(path: string, params: Record<string, string | null | undefined> = {}): string {
    if (embedded) return `#${new URLSearchParams(Object.entries(params).filter((pair): pair is [string, string] => !!pair[1]))}`;
    const url = new URL(path.replace(/^\//, ""), base);
    for (const [name, one] of Object.entries(params)) if (one) url.searchParams.set(name, one);
    return url.pathname + url.search;
  }

  go(path: string, params: Record<string, string | null | undefined> = {}): void {
    if (embedded) return; // there is only one job in the file
    history.pushState(null, "", this.href(path, params));
    this.route = read();
    window.scrollTo(0, 0);
  }

  /** Change the query only; `push` where going back should undo it. */
  set(changes: Record<string, string | null | undefined>, push = false): void {
    if (embedded) {
      const params = new URLSearchParams(location.hash.slice(1));
      for (const [name, one] of Object.entries(changes)) {
        if (one) params.set(name, one);
        else params.delete(name);
      }
      location.hash = params.toString();
      return;
    }
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
