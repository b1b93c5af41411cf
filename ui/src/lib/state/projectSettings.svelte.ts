/** One project's settings as a person edits them: what is kept, what is written and not saved yet, and what is wrong with it. */
import type { Client } from "../ipc/client";
import type { ProjectSettings } from "../types";
import { Loading } from "./loading.svelte";

type Texts = Pick<ProjectSettings, "commitAuthor" | "commitEmail" | "commitMessage">;

export class ProjectForm {
  readonly project: string;
  #client: Client;
  #loading: Loading<ProjectSettings>;
  #written = $state.raw<Partial<Texts>>({});

  constructor(client: Client, project: string) {
    this.project = project;
    this.#client = client;
    this.#loading = new Loading(() => client.projectSettings(project));
  }

  get value(): ProjectSettings | null {
    return this.#loading.value;
  }
  get error() {
    return this.#loading.error;
  }
  readonly isChanged = $derived.by(() => Object.entries(this.#written).some(([key, text]) => text.trim() !== this.value?.[key as keyof Texts]));
  readonly problems = $derived.by((): Set<keyof Texts> => {
    const problems = new Set<keyof Texts>();
    if (this.text("commitAuthor").trim() === "" || /[<>\n]/.test(this.text("commitAuthor"))) problems.add("commitAuthor");
    if (!/^[^\s<>@]+@[^\s<>@]+$/.test(this.text("commitEmail").trim())) problems.add("commitEmail");
    if (this.text("commitMessage").trim() === "") problems.add("commitMessage");
    return problems;
  });

  load(): Promise<void> {
    return this.#loading.load();
  }

  text(key: keyof Texts): string {
    return this.#written[key] ?? this.value?.[key] ?? "";
  }

  write(key: keyof Texts, text: string): void {
    this.#written = { ...this.#written, [key]: text };
  }

  /** Switches are kept at once. */
  async save(change: Partial<ProjectSettings>): Promise<void> {
    const { value } = this;
    if (value === null) return;
    await this.#client.projectSettingsSet(this.project, { ...value, ...change });
    await this.load();
  }

  async saveTexts(): Promise<void> {
    if (this.problems.size > 0) return;
    await this.save({ commitAuthor: this.text("commitAuthor").trim(), commitEmail: this.text("commitEmail").trim(), commitMessage: this.text("commitMessage").trim() });
    this.#written = {};
  }
}

/** A commit message with its placeholders filled, as the engine fills them. */
export function fillMessage(template: string, title: string, sandbox: string): string {
  return template.replace(/\{(title|sandbox)\}/g, (_, name: string) => (name === "title" ? title : sandbox));
}
