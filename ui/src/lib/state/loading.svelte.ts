import { CourierError } from "../ipc/client";

/** Something the engine is asked for: its value, or that it is still being fetched, or why it could not be. */
export class Loading<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<CourierError | null>(null);
  isPending = $state(false);
  loadedAt = 0;
  #ask: () => Promise<T>;
  #asked = 0;

  constructor(ask: () => Promise<T>) {
    this.#ask = ask;
  }

  /** Asks anew; the old value stays visible meanwhile, and an overtaken answer is ignored. */
  async load(): Promise<void> {
    const asked = ++this.#asked;
    this.isPending = true;
    try {
      const value = await this.#ask();
      if (asked !== this.#asked) return;
      this.loadedAt = Date.now();
      this.value = value;
      this.error = null;
    } catch (thrown) {
      if (asked === this.#asked) this.error = CourierError.from(thrown);
    } finally {
      if (asked === this.#asked) this.isPending = false;
    }
  }
}
