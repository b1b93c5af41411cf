/** What everything occupies, and which workspaces a person has chosen to clean: never one that is not safe, never by itself. */
import type { Client } from "../ipc/client";
import type { Storage, StorageEntry } from "../types";
import { Loading } from "./loading.svelte";

export class StorageUse {
  #client: Client;
  #loading: Loading<Storage>;
  #chosen = $state.raw<ReadonlySet<string>>(new Set());

  constructor(client: Client) {
    this.#client = client;
    this.#loading = new Loading(() => client.storage());
  }

  get value(): Storage | null {
    return this.#loading.value;
  }
  get error() {
    return this.#loading.error;
  }
  /** The largest first; what can be cleaned before what cannot. */
  readonly entries = $derived.by((): StorageEntry[] => [...(this.value?.entries ?? [])].sort((one, other) => Number(canClean(other)) - Number(canClean(one)) || other.bytes - one.bytes));
  readonly cleanable = $derived.by(() => this.entries.filter(canClean));
  /** What is chosen and, after all that may have happened since, still safe. */
  readonly chosen = $derived.by(() => this.cleanable.filter(({ sandbox }) => this.#chosen.has(sandbox)));
  readonly chosenBytes = $derived.by(() => this.chosen.reduce((sum, { workspaceBytes }) => sum + workspaceBytes, 0));

  load(): Promise<void> {
    return this.#loading.load();
  }

  isChosen(sandbox: string): boolean {
    return this.chosen.some((entry) => entry.sandbox === sandbox);
  }

  toggle(sandbox: string): void {
    const chosen = new Set(this.#chosen);
    if (!chosen.delete(sandbox)) chosen.add(sandbox);
    this.#chosen = chosen;
  }

  chooseSafe(): void {
    this.#chosen = new Set(this.cleanable.map(({ sandbox }) => sandbox));
  }

  chooseNone(): void {
    this.#chosen = new Set();
  }

  /** Says how many bytes that freed. */
  async clean(): Promise<number> {
    const freed = await this.#client.storageClean(this.chosen.map(({ sandbox }) => sandbox));
    this.chooseNone();
    await this.load();
    return freed;
  }
}

export function canClean(entry: StorageEntry): boolean {
  return entry.isSafe && entry.workspaceBytes > 0;
}
