/** The sandbox whose page is shown: its details, its transcript, and what a person can do to it. */
import type { Client, CourierError } from "../ipc/client";
import type { Changed, ProjectSettings, Sandbox, SandboxDetails, SendHow } from "../types";
import { SandboxChanges } from "./changes.svelte";
import { SandboxDelivery } from "./delivery.svelte";
import { Loading } from "./loading.svelte";
import { Transcript } from "./transcript.svelte";

/** Details follow changes at most this often: a working agent changes its headline many times a second. */
const REFRESH = 700;

export type PageTab = "conversation" | "terminal" | "changes";

export class OpenSandbox {
  readonly id: string;
  readonly transcript: Transcript;
  readonly changes: SandboxChanges;
  readonly delivery: SandboxDelivery;
  /** How its project delivers: what a stop does, and whether the text is shown first. */
  readonly project: Loading<ProjectSettings>;
  /** Which part of the page is shown. */
  tab = $state<PageTab>("conversation");
  #client: Client;
  #details: Loading<SandboxDetails>;
  #newest = $state.raw<Sandbox | null>(null);
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(client: Client, id: string, known: Sandbox | null) {
    this.id = id;
    this.#client = client;
    this.#newest = known;
    this.transcript = new Transcript(client, id);
    this.changes = new SandboxChanges(client, id);
    this.delivery = new SandboxDelivery(client, id);
    this.project = new Loading(() => client.projectSettings(this.sandbox?.project ?? ""));
    this.#details = new Loading(() => client.sandboxGet(id));
  }

  get details(): SandboxDetails | null {
    return this.#details.value;
  }
  get error(): CourierError | null {
    return this.#details.error;
  }
  /** The newest of what the list, an event or the details said. */
  readonly sandbox = $derived.by((): Sandbox | null => {
    const fetched = this.#details.value?.sandbox ?? null;
    if (this.#newest === null || fetched === null) return this.#newest ?? fetched;
    return fetched.revision >= this.#newest.revision ? fetched : this.#newest;
  });

  /** Running time so far: what the engine counted, and what has passed since it said so. */
  runningMs(now: number): number {
    const details = this.#details.value;
    if (details === null) return 0;
    return details.runningMs + (this.sandbox?.status === "running" ? Math.max(0, now - this.#details.loadedAt) : 0);
  }

  open(): void {
    const isKnown = this.#newest !== null;
    if (isKnown) void this.project.load();
    void this.load().then(() => {
      if (!isKnown && this.sandbox !== null) return this.project.load();
    });
    void this.transcript.open();
    void this.changes.load();
  }

  async load(): Promise<void> {
    await Promise.all([this.#details.load(), this.delivery.load()]);
  }

  close(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.transcript.close();
  }

  apply(change: Changed): void {
    if (change.kind !== "sandbox" || change.sandbox.id !== this.id) return;
    if (this.#newest !== null && this.#newest.revision > change.sandbox.revision) return;
    const before = this.#newest;
    this.#newest = change.sandbox;
    if (before?.status !== change.sandbox.status || before.isWorking !== change.sandbox.isWorking) {
      void this.load();
      void this.changes.load();
      return;
    }
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.load();
      // While the agent works there is no new checkpoint.
      if (this.#newest?.isWorking !== true) void this.changes.load();
    }, REFRESH);
  }

  pause = () => this.#client.sandboxPause(this.id);
  resume = () => this.#client.sandboxResume(this.id);
  stop = () => this.#client.sandboxStop(this.id);
  delete = () => this.#client.sandboxDelete(this.id);
  interrupt = () => this.#client.sandboxInterrupt(this.id);
  extend = (minutes: number) => this.#client.sandboxExtend(this.id, minutes);
  /** Lets the agent go on at this moment, once a limit has ended; null takes that back. */
  continueAt = (at: number | null) => this.#client.sandboxContinueAt(this.id, at);
  send = (content: string, how: SendHow) => this.#client.sandboxSend(this.id, content, how);
  editQueued = (message: string, content: string) => this.#client.messageEdit(message, content);
  cancelQueued = (message: string) => this.#client.messageCancel(message);
  readLog = (cursor: number | null) => this.#client.logRead(this.id, cursor);
}
