/** Everything the window knows, in one object that comes by context; a test passes one with a fake client. */
import { createContext } from "svelte";
import type { Client } from "../ipc/client";
import { m } from "../../paraglide/messages.js";
import { showBidi } from "../text/bidi";
import type { Changed, Navigate, Sandbox } from "../types";
import { ChangesLayout } from "./changes.svelte";
import { Clock } from "./clock.svelte";
import { Drafts } from "./drafts.svelte";
import { Navigation } from "./navigation.svelte";
import { Notices } from "./notices.svelte";
import { OpenSandbox } from "./openSandbox.svelte";
import { Projects } from "./projects.svelte";
import { SandboxList } from "./sandboxes.svelte";
import { ApplicationSettings } from "./settings.svelte";
import { StorageUse } from "./storageUse.svelte";
import { Trash } from "./trash.svelte";

export class Courier {
  readonly client: Client;
  readonly clock = new Clock();
  readonly changesLayout = new ChangesLayout();
  readonly drafts = new Drafts();
  readonly navigation = new Navigation();
  readonly notices = new Notices();
  readonly projects: Projects;
  readonly sandboxes: SandboxList;
  readonly application: ApplicationSettings;
  readonly trash: Trash;
  readonly storage: StorageUse;
  #opened = $state.raw<OpenSandbox | null>(null);

  constructor(client: Client) {
    this.client = client;
    this.projects = new Projects(client);
    this.sandboxes = new SandboxList(client);
    this.application = new ApplicationSettings(client);
    this.trash = new Trash(client);
    this.storage = new StorageUse(client);
  }

  get opened(): OpenSandbox | null {
    return this.#opened;
  }

  /** Listens first and asks afterwards, so that nothing falls between; revisions sort out what is newer. */
  async start(): Promise<() => void> {
    const stops = await Promise.all([
      this.client.onChanged((change) => this.#apply(change)),
      this.client.onNavigate((target) => this.#navigate(target)),
    ]);
    stops.push(this.clock.start());
    await Promise.all([this.projects.load(), this.application.load()]);
    if (this.projects.isLoaded && this.projects.find(this.navigation.project) === null) this.navigation.showProject(null);
    await this.sandboxes.show({ project: this.navigation.project });
    if (this.navigation.sandbox !== null) this.openSandbox(this.navigation.sandbox);
    return () => stops.forEach((stop) => stop());
  }

  openSandbox(id: string | null): void {
    this.navigation.showSandbox(id);
    if (this.#opened?.id === id) return;
    this.#opened?.close();
    this.#opened = id === null ? null : new OpenSandbox(this.client, id, this.sandboxes.find(id));
    this.#opened?.open();
  }

  /** Moves a sandbox to the trash and offers to take it back. */
  async deleteSandbox(sandbox: Pick<Sandbox, "id" | "title">): Promise<void> {
    const isDeleted = await this.notices.attempt(() => this.client.sandboxDelete(sandbox.id));
    if (!isDeleted) return;
    if (this.#opened?.id === sandbox.id) this.openSandbox(null);
    this.notices.say(m.notice_deleted({ title: showBidi(sandbox.title) }), { label: m.undo(), run: () => this.client.sandboxRestore(sandbox.id) });
  }

  showProjectSettings(project: string): void {
    if (project !== this.navigation.project) this.showProject(project);
    this.navigation.showView("project");
  }

  showTrash(): void {
    this.navigation.showView("trash");
    void this.trash.show(this.navigation.project);
  }

  showProject(project: string | null): void {
    if (project !== this.navigation.project) this.openSandbox(null);
    this.navigation.showProject(project);
    if (project !== this.sandboxes.filter.project) void this.sandboxes.show({ project });
  }

  #apply(change: Changed): void {
    this.projects.apply(change);
    this.sandboxes.apply(change);
    this.application.apply(change);
    this.trash.apply(change);
    this.#opened?.apply(change);
  }

  #navigate(target: Navigate): void {
    if (target.kind === "sandbox") this.openSandbox(target.id);
    else if (target.kind === "newSandbox") this.navigation.open({ kind: "newSandbox", prefill: null });
    else this.navigation.showView(target.kind);
  }
}

export const [getCourier, setCourier] = createContext<Courier>();
