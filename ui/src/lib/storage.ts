/** What the window remembers by itself: drafts and where one was. Never anything the engine owns, never a secret. */
export function remember(key: string, value: unknown): void {
  try {
    if (value === null || value === "") localStorage.removeItem(`courier:${key}`);
    else localStorage.setItem(`courier:${key}`, JSON.stringify(value));
  } catch {
    // A full or missing storage costs a draft after a reload, nothing else.
  }
}

export function recall<T>(key: string, isValid: (value: unknown) => value is T): T | null {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(`courier:${key}`) ?? "null");
    return isValid(value) ? value : null;
  } catch {
    return null;
  }
}

export const isString = (value: unknown): value is string => typeof value === "string";
export const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
