// Keys. A view registers what it understands; the newest registration that knows a key gets it.

export type Handler = (event: KeyboardEvent) => void;
export type Keys = Record<string, Handler>;

const layers: Keys[] = [];
let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

export function useKeys(keys: Keys): () => void {
  layers.push(keys);
  return () => {
    const at = layers.indexOf(keys);
    if (at >= 0) layers.splice(at, 1);
  };
}

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.("input, textarea, select, [contenteditable]");
}

export function listen(): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") (event.target as HTMLElement).blur();
      return;
    }
    const key = prefix + event.key;
    clearTimeout(prefixTimer);
    prefix = "";
    for (let i = layers.length - 1; i >= 0; i--) {
      const handler = layers[i]?.[key];
      if (handler) {
        event.preventDefault();
        handler(event);
        return;
      }
    }
    if (event.key === "g") {
      prefix = "g ";
      prefixTimer = setTimeout(() => (prefix = ""), 1200);
    }
  });
}
