// What people arranged on the page: their own in this browser, what they share on the server.

import type { PageLayout } from "./contract";
import { get, post } from "./client";

/** A search of the table, with its sorting, grouping and columns. */
export interface TableView {
  address: string;
  columns: { metrics: string[]; config: string[] } | null;
}

/** The charts of an experiment: which are pinned, and how all are drawn. */
export interface ChartsLayout {
  pins: string[];
  view: Record<string, string | number | boolean>;
}

export interface Named<Data> {
  name: string;
  data: Data;
}

const named = <Data>(found: PageLayout[]): Named<Data>[] => found.map((one) => ({ name: one.name, data: one.data as unknown as Data }));

export async function sharedViews(): Promise<Named<TableView>[]> {
  return named(await get<PageLayout[]>("api/layouts", { kind: "view" }));
}

/** Null removes it. */
export async function shareView(name: string, data: TableView | null): Promise<Named<TableView>[]> {
  return named(await post<PageLayout[]>("api/layouts", { kind: "view", name, data }));
}

export async function sharedCharts(experiment: string): Promise<ChartsLayout | null> {
  const found = named<ChartsLayout>(await get<PageLayout[]>("api/layouts", { kind: "charts", name: experiment }));
  return found[0]?.data ?? null;
}

export async function shareCharts(experiment: string, data: ChartsLayout | null): Promise<void> {
  await post("api/layouts", { kind: "charts", name: experiment, data });
}
