// Jobs that were chosen in the table, for compare and for actions on all of them.

class Selection {
  ids = $state.raw<ReadonlySet<string>>(new Set());

  toggle(id: string): void {
    const next = new Set(this.ids);
    if (!next.delete(id)) next.add(id);
    this.ids = next;
  }

  all(ids: string[], chosen: boolean): void {
    const next = new Set(this.ids);
    for (const id of ids) {
      if (chosen) next.add(id);
      else next.delete(id);
    }
    this.ids = next;
  }

  clear(): void {
    this.ids = new Set();
  }
}

export const selection = new Selection();
