/** Keys that work everywhere in the window. Letters only where nothing is typed; none while a dialog is open. */
export type Shortcut = "palette" | "shortcuts" | "new" | "search" | "composer" | "list";

export function shortcut(event: KeyboardEvent, isDialogOpen: boolean): Shortcut | null {
  if (isDialogOpen || event.defaultPrevented || event.isComposing || event.altKey) return null;
  const isCommand = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (isCommand) return key === "k" ? "palette" : key === "n" ? "new" : null;
  const target = event.target instanceof HTMLElement ? event.target : null;
  if (target?.closest("input, textarea, select, [contenteditable], .xterm") != null) return null;
  if (key === "n") return "new";
  if (key === "/") return "search";
  if (key === "c") return "composer";
  if (key === "j" || key === "k") return "list";
  if (event.key === "?") return "shortcuts";
  return null;
}
