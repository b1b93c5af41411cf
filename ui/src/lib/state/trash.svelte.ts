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

  facts = (id: string) => this.#client.purgeFacts(id);

  async restore(id: string): Promise<void> {
    await this.#client.sandboxRestore(id);
    await this.load();
  }

  /** What is gone for good may change nothing that is told of: the list is asked for again. */
  async purge(id: string): Promise<void> {
    await this.#client.sandboxPurge(id);
    await this.load();
  }

  /** Says how many are gone. */
  async empty(): Promise<number> {
    const gone = await this.#client.trashEmpty();
    await this.load();
    return gone;
  }
}
