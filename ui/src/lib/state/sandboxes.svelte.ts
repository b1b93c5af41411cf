/**
 * The list of sandboxes. Live ones and ended ones are asked for apart: all live ones belong at the top however old they are, and
 * the ended ones come page by page.
 */
import { CourierError, type Client } from "../ipc/client";
import type { Changed, Sandbox, SandboxPage, Status } from "../types";

export const LIVE: Status[] = ["creating", "running", "paused"];
export const ENDED: Status[] = ["killed", "error"];
export const isLive = (sandbox: Pick<Sandbox, "status">) => LIVE.includes(sandbox.status);

export type Filter = { project: string | null; statuses: Status[]; search: string };
export type Group = { kind: "live" | "today" | "earlier"; rows: Sandbox[] };

const PAGE = 100;
const MOST_LIVE = 500;

export class SandboxList {
  #client: Client;
  #rows = $state.raw<Sandbox[]>([]);
  #next = $state<string | null>(null);
  #isLoaded = $state(false);
  #isLoading = $state(false);
  #error = $state.raw<CourierError | null>(null);
  #filter = $state.raw<Filter>({ project: null, statuses: [], search: "" });
  #asked = 0;

  constructor(client: Client) {
    this.#client = client;
  }

  get rows(): Sandbox[] {
    return this.#rows;
  }
  get hasMore(): boolean {
    return this.#next !== null;
  }
  get isLoaded(): boolean {
    return this.#isLoaded;
  }
  get isLoading(): boolean {
    return this.#isLoading;
  }
  get error(): CourierError | null {
    return this.#error;
  }
  get filter(): Filter {
    return this.#filter;
  }

  find(id: string | null): Sandbox | null {
    return this.#rows.find((row) => row.id === id) ?? null;
  }

  /** Shows another part of the sandboxes; what was shown goes at once where another project's rows would mislead. */
  async show(filter: Partial<Filter>): Promise<void> {
    const isOtherProject = filter.project !== undefined && filter.project !== this.#filter.project;
    this.#filter = { ...this.#filter, ...filter };
    if (isOtherProject) {
      this.#rows = [];
      this.#isLoaded = false;
    }
    await this.load();
  }

  async load(): Promise<void> {
    const asked = ++this.#asked;
    this.#isLoading = true;
    try {
      const [live, ended] = await Promise.all([this.#page(LIVE, null, MOST_LIVE), this.#page(ENDED, null, PAGE)]);
      if (asked !== this.#asked) return;
      this.#rows = merge(live.rows, ended.rows);
      this.#next = ended.next;
      this.#isLoaded = true;
      this.#error = null;
    } catch (thrown) {
      if (asked === this.#asked) this.#error = CourierError.from(thrown);
    } finally {
      if (asked === this.#asked) this.#isLoading = false;
    }
  }

  /** The next page of ended ones. */
  async more(): Promise<void> {
    if (this.#next === null || this.#isLoading) return;
    const asked = ++this.#asked;
    this.#isLoading = true;
    try {
      const page = await this.#page(ENDED, this.#next, PAGE);
      if (asked !== this.#asked) return;
      this.#rows = merge(this.#rows, page.rows);
      this.#next = page.next;
    } catch (thrown) {
      if (asked === this.#asked) this.#error = CourierError.from(thrown);
    } finally {
      if (asked === this.#asked) this.#isLoading = false;
    }
  }

  apply(change: Changed): void {
    if (change.kind !== "sandbox") return;
    const { sandbox } = change;
    const known = this.find(sandbox.id);
    if (known !== null && known.revision > sandbox.revision) return;
    if (!this.#matches(sandbox)) {
      this.#rows = this.#rows.filter((row) => row.id !== sandbox.id);
    } else if (known !== null) {
      this.#rows = this.#rows.map((row) => (row.id === sandbox.id ? sandbox : row));
    } else {
      this.#rows = merge([sandbox], this.#rows);
    }
  }

  #page(among: Status[], after: string | null, limit: number): Promise<SandboxPage> {
    const { project, search } = this.#filter;
    const chosen = this.#filter.statuses;
    const statuses = chosen.length === 0 ? among : among.filter((status) => chosen.includes(status));
    if (statuses.length === 0) return Promise.resolve({ rows: [], next: null, total: 0, revision: 0 });
    return this.#client.sandboxList({ project, statuses, search: search.trim() === "" ? null : search.trim(), after, limit });
  }

  #matches(sandbox: Sandbox): boolean {
    const { project, statuses, search } = this.#filter;
    if (sandbox.isDeleted || (project !== null && sandbox.project !== project)) return false;
    if (statuses.length > 0 && !statuses.includes(sandbox.status)) return false;
    return search.trim() === "" || sandbox.title.toLowerCase().includes(search.trim().toLowerCase());
  }
}

/** Newest first, each id once, the newer revision winning. */
function merge(some: Sandbox[], others: Sandbox[]): Sandbox[] {
  const byId = new Map<string, Sandbox>();
  for (const row of [...some, ...others]) {
    const known = byId.get(row.id);
    if (known === undefined || known.revision < row.revision) byId.set(row.id, row);
  }
  return [...byId.values()].sort((a, b) => b.createdAt - a.createdAt || b.id.localeCompare(a.id));
}

/** Live, ended today, earlier; empty groups are left out. Ended ones are ordered by their end. */
export function group(rows: Sandbox[], now: number): Group[] {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const live = rows.filter(isLive);
  const ended = rows.filter((row) => !isLive(row)).sort((a, b) => endOf(b) - endOf(a));
  const groups: Group[] = [
    { kind: "live", rows: live },
    { kind: "today", rows: ended.filter((row) => endOf(row) >= midnight) },
    { kind: "earlier", rows: ended.filter((row) => endOf(row) < midnight) },
  ];
  return groups.filter(({ rows: part }) => part.length > 0);
}

export function endOf(sandbox: Sandbox): number {
  return sandbox.endedAt ?? sandbox.createdAt;
}
