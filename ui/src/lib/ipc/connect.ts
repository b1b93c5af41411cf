import { createClient, type Client } from "./client";

/** The engine; or, while developing in a plain browser, a fake one that never reaches the production bundle. */
export async function connect(): Promise<Client> {
  if (import.meta.env.DEV && !("__TAURI_INTERNALS__" in window)) {
    const { createFake } = await import("./fake/fake");
    return createFake(new URLSearchParams(location.search));
  }
  return createClient();
}
