// What the browser remembers for a person: choices of views, never data of jobs. Works without storage, too.

const PREFIX = "headway.";

export function recall(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null; // storage is switched off
  }
}

export function remember(name: string, text: string | null): void {
  try {
    if (text === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, text);
  } catch {
    // storage is full or switched off: the choice holds until the page is closed
  }
}

export function recallJson<T>(name: string, otherwise: T): T {
  try {
    const text = recall(name);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise; // written by another version
  }
}

export const rememberJson = (name: string, value: unknown): void => remember(name, JSON.stringify(value));
