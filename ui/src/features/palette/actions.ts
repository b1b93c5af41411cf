/** What the palette offers, and how typed words find it. */
import type { Sandbox, Status } from "../../lib/types";

export type Action = { id: string; label: string; note: string; status: Status | null; keys: string | null; run: () => void };

/** Every typed word must begin a word of the label, or occur in it; those that begin it come first. */
export function find(actions: Action[], typed: string): Action[] {
  const words = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return actions;
  const rank = (action: Action): number => {
    const text = `${action.label} ${action.note}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) return 0;
    return words.every((word) => text.startsWith(word) || text.includes(` ${word}`)) ? 2 : 1;
  };
  return actions.filter((action) => rank(action) > 0).sort((a, b) => rank(b) - rank(a));
}

export function byRecency(rows: Sandbox[]): Sandbox[] {
  return [...rows].sort((a, b) => (b.endedAt ?? Infinity) - (a.endedAt ?? Infinity) || b.createdAt - a.createdAt);
}
