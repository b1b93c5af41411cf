import type { Client } from "../ipc/client";
import type { Changed, Project } from "../types";
import { Loading } from "./loading.svelte";

export class Projects {
  #client: Client;
  #loading: Loading<Project[]>;

  constructor(client: Client) {
    this.#client = client;
    this.#loading = new Loading(() => client.projectList());
  }

  get rows(): Project[] {
    return this.#loading.value ?? [];
  }
  get isLoaded(): boolean {
    return this.#loading.value !== null;
  }
  get error() {
    return this.#loading.error;
  }
  readonly active = $derived.by(() => this.rows.reduce((sum, project) => sum + project.activeSandboxes, 0));
  readonly sandboxes = $derived.by(() => this.rows.reduce((sum, project) => sum + project.sandboxes, 0));

  find(id: string | null): Project | null {
    return this.rows.find((project) => project.id === id) ?? null;
  }

  load(): Promise<void> {
    return this.#loading.load();
  }

  async add(source: string): Promise<Project> {
    return this.#put(await this.#client.projectAdd(source, null));
  }

  async sample(): Promise<Project> {
    return this.#put(await this.#client.projectSample());
  }

  apply(change: Changed): void {
    if (change.kind === "project") this.#put(change.project);
  }

  #put(project: Project): Project {
    const isKnown = this.rows.some((row) => row.id === project.id);
    this.#loading.value = isKnown ? this.rows.map((row) => (row.id === project.id ? project : row)) : [...this.rows, project];
    return project;
  }
}
