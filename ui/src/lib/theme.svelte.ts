import { MediaQuery } from "svelte/reactivity";
import type { Settings } from "./types";

/** Whether the system is dark now. */
export function followSystem(): { readonly current: boolean } {
  return new MediaQuery("prefers-color-scheme: dark", true);
}

export function resolveTheme(choice: Settings["theme"], isSystemDark: boolean): "light" | "dark" {
  if (choice !== "system") return choice;
  return isSystemDark ? "dark" : "light";
}
