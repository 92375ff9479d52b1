// Where the charts of a page are, without making any of them: sections by the part of the name before the first slash.

export type Item =
  | { kind: "section"; key: string; name: string; count: number; top: number; height: number }
  | { kind: "row"; key: string; cells: Cell[]; top: number; height: number };

/** A chart of the page: a metric, and where it is split which panel of it. */
export interface Cell {
  name: string;
  panel: number;
}

export const SECTION_HEIGHT = 40;
export const ROW_HEIGHT = 256;
export const PINNED = "pinned";
export const PLAIN = "metrics";
/** So few metrics stand together, whatever their names: headings would take more room than they give order. */
const FEW = 9;

export const sectionOf = (name: string): string => (name.includes("/") ? name.slice(0, name.indexOf("/")) : PLAIN);

/** `panels` is how many charts each metric has: more than one, and every metric is a section of its own. */
export function layout(names: string[], pins: string[], columns: number, closed: ReadonlySet<string>, panels = 1): { items: Item[]; height: number } {
  const sections = new Map<string, string[]>();
  const pinned = pins.filter((name) => names.includes(name));
  if (pinned.length && panels === 1) sections.set(PINNED, pinned);
  for (const name of names) {
    const section = sectionFor(name, names.length, panels);
    const found = sections.get(section);
    if (found) found.push(name);
    else sections.set(section, [name]);
  }
  const pinnedFirst = (section: string): number => (panels > 1 && pins.includes(section) ? 0 : 1);
  const order = [...sections.keys()].sort((a, b) => pinnedFirst(a) - pinnedFirst(b) || rank(a) - rank(b) || a.localeCompare(b));
  const items: Item[] = [];
  let top = 0;
  for (const section of order) {
    const members = sections.get(section) ?? [];
    if (order.length > 1 || panels > 1) {
      items.push({ kind: "section", key: `s:${section}`, name: section, count: members.length, top, height: SECTION_HEIGHT });
      top += SECTION_HEIGHT;
      if (closed.has(section)) continue;
    }
    const cells = members.flatMap((name) => Array.from({ length: panels }, (_, panel) => ({ name, panel })));
    for (let at = 0; at < cells.length; at += columns) {
      const some = cells.slice(at, at + columns);
      items.push({ kind: "row", key: `r:${section}:${some[0]?.name}:${some[0]?.panel}`, cells: some, top, height: ROW_HEIGHT });
      top += ROW_HEIGHT;
    }
  }
  return { items, height: top };
}

const rank = (section: string): number => (section === PINNED ? 0 : section === PLAIN ? 1 : section === "printed" ? 3 : 2);

function sectionFor(name: string, count: number, panels: number): string {
  if (panels > 1) return name;
  return count <= FEW ? PLAIN : sectionOf(name);
}
