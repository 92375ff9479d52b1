// Short messages at the edge: what an action did, or why it did not.

export interface Toast {
  id: number;
  text: string;
  hint: string;
  bad: boolean;
}

class Toasts {
  list = $state<Toast[]>([]);
  private last = 0;

  say(text: string, hint = "", bad = false): void {
    const id = ++this.last;
    this.list = [...this.list.slice(-3), { id, text, hint, bad }];
    setTimeout(() => this.close(id), bad ? 12_000 : 4_000);
  }

  fail(error: unknown): void {
    const told = error as { message?: string; hint?: string };
    this.say(told.message ?? "something went wrong", told.hint ?? "", true);
  }

  close(id: number): void {
    this.list = this.list.filter((one) => one.id !== id);
  }
}

export const toasts = new Toasts();
