/** What was deleted and can still come back. */
import type { Client } from "../ipc/client";
import type { Changed, Sandbox } from "../types";
import { Loading } from "./loading.svelte";

export class Trash {
  #client: Client;
  #project: string | null = null;
  #loading: Loading<Sandbox[]>;

  constructor(client: Client) {
    this.#client = client;
    this.#loading = new Loading(() => client.trashList(this.#project));
  }

  get rows(): Sandbox[] | null {
    return this.#loading.value;
  }
  get error() {
    return this.#loading.error;
  }

  async show(project: string | null): Promise<void> {
    if (project !== this.#project) this.#loading.value = null;
    this.#project = project;
    await this.#loading.load();
  }

  load(): Promise<void> {
    return this.#loading.load();
  }

  /** A list that nobody has looked at yet is not asked for. */
  apply(change: Changed): void {
    if (change.kind !== "sandbox" || this.#loading.value === null) return;
    const { sandbox } = change;
    const isKnown = this.#loading.value.some(({ id }) => id === sandbox.id);
    if (sandbox.isDeleted || isKnown) void this.#loading.load();
  }

  restore = (id: string) => this.#client.sandboxRestore(id);
  purge = (id: string) => this.#client.sandboxPurge(id);
  facts = (id: string) => this.#client.purgeFacts(id);
  empty = () => this.#client.trashEmpty();
}
