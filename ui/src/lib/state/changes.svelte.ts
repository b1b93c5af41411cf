/**
 * What a sandbox changed: its checkpoints, the part of the way that is looked at, the files that differ there and, once they come
 * in sight, their contents. Nothing here is asked for before its tab is opened, but for the two numbers on the tab.
 */
import { SvelteMap } from "svelte/reactivity";
import { isString, recall, remember } from "../storage";
import type { Client, CourierError } from "../ipc/client";
import type { ChangedFile, Changes, Checkpoint, FileChange } from "../types";
import { Loading } from "./loading.svelte";

/** From where to where: all of it, one turn, or any two checkpoints (`from` null: the beginning). */
export type Range = { kind: "all" } | { kind: "turn"; turn: number } | { kind: "between"; from: string | null; to: string | null };
export type Layout = "unified" | "split";
/** The two checkpoints a range means. Null: where it began, and the newest. */
export type Ends = { from: string | null; to: string | null };

export class SandboxChanges {
  readonly id: string;
  readonly checkpoints: Loading<Checkpoint[]>;
  #client: Client;
  #total: Loading<Changes>;
  #shown: Loading<Changes>;
  #files = new SvelteMap<string, Loading<FileChange>>();
  #range = $state.raw<Range>({ kind: "all" });
  #selected = $state<string | null>(null);
  #isOpen = false;
  #newest: string | null = null;

  constructor(client: Client, id: string) {
    this.id = id;
    this.#client = client;
    this.checkpoints = new Loading(() => client.sandboxCheckpoints(id));
    this.#total = new Loading(() => client.changes(id, null, null));
    this.#shown = new Loading(() => client.changes(id, this.ends.from, this.ends.to));
  }

  get range(): Range {
    return this.#range;
  }
  /** The file the tree marks. */
  get selected(): string | null {
    return this.#selected;
  }
  readonly turns = $derived.by(() => [...new Set((this.checkpoints.value ?? []).flatMap(({ turn }) => (turn === null ? [] : [turn])))]);
  readonly ends = $derived.by((): Ends => endsOf(this.#range, this.checkpoints.value ?? []));
  /** The checkpoint at the range's end: what is opened, restored or begun from. */
  readonly end = $derived.by((): Checkpoint | null => {
    const all = this.checkpoints.value ?? [];
    return (this.ends.to === null ? all.at(-1) : all.find(({ id }) => id === this.ends.to)) ?? null;
  });
  get changes(): Changes | null {
    return this.#range.kind === "all" ? this.#total.value : this.#shown.value;
  }
  get error(): CourierError | null {
    return this.#current.error ?? this.checkpoints.error;
  }
  /** What the tab says: lines added and removed in all. */
  get total(): { added: number; removed: number } | null {
    const value = this.#total.value;
    return value === null || value.files.length === 0 ? null : { added: value.added, removed: value.removed };
  }
  get #current(): Loading<Changes> {
    return this.#range.kind === "all" ? this.#total : this.#shown;
  }

  /** The tab is looked at for the first time, or again. */
  open(): void {
    this.#isOpen = true;
    void this.load();
  }

  /** Looks whether there is a newer checkpoint; only then anything else is asked again. */
  async load(): Promise<void> {
    await this.checkpoints.load();
    const newest = this.checkpoints.value?.at(-1)?.id ?? null;
    const isNewer = newest !== this.#newest;
    this.#newest = newest;
    if (isNewer || (this.#isOpen && this.#total.value === null) || this.#total.error !== null) await this.#total.load();
    if (isNewer && this.ends.to === null) this.#files.clear();
    if (this.#range.kind !== "all" && ((isNewer && this.ends.to === null) || this.#shown.value === null)) await this.#shown.load();
  }

  show(range: Range): void {
    this.#range = range;
    this.#files.clear();
    if (range.kind === "all") return;
    this.#shown.value = null;
    void this.#shown.load();
  }

  select(path: string | null): void {
    this.#selected = path;
  }

  retry(): void {
    void this.load();
    if (this.#range.kind !== "all") void this.#shown.load();
  }

  /** A file's contents, asked for when it is first drawn. */
  file(path: string): Loading<FileChange> | null {
    return this.#files.get(path) ?? null;
  }

  need(file: ChangedFile, isForced = false): void {
    if (this.#files.has(file.path) && !isForced) return;
    const { from, to } = this.ends;
    const loading = new Loading(() => this.#client.changesFile(this.id, from, to, file.path, file.oldPath, isForced));
    this.#files.set(file.path, loading);
    void loading.load();
  }

  patch = () => this.#client.changesPatch(this.id, this.ends.from, this.ends.to);
  openCheckpoint = (checkpoint: string) => this.#client.checkpointOpen(this.id, checkpoint);
  restore = (checkpoint: string) => this.#client.checkpointRestore(this.id, checkpoint);
}

/** A turn's changes are those between its last checkpoint and the one before its first. */
export function endsOf(range: Range, checkpoints: Checkpoint[]): Ends {
  if (range.kind === "all") return { from: null, to: null };
  if (range.kind === "between") return { from: range.from, to: range.to };
  const first = checkpoints.findIndex(({ turn }) => turn === range.turn);
  return { from: checkpoints[first - 1]?.id ?? null, to: checkpoints.findLast(({ turn }) => turn === range.turn)?.id ?? null };
}

/** How changes are laid out; the same for every sandbox, kept by the window. */
export class ChangesLayout {
  #layout = $state<Layout>("unified");
  #hasTree = $state(true);

  constructor() {
    if (recall("changes:layout", isString) === "split") this.#layout = "split";
    if (recall("changes:tree", isString) === "hidden") this.#hasTree = false;
  }

  get layout(): Layout {
    return this.#layout;
  }
  set layout(layout: Layout) {
    this.#layout = layout;
    remember("changes:layout", layout);
  }
  get hasTree(): boolean {
    return this.#hasTree;
  }
  set hasTree(hasTree: boolean) {
    this.#hasTree = hasTree;
    remember("changes:tree", hasTree ? null : "hidden");
  }
}
