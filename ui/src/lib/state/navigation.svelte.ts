import { isRecord, recall, remember } from "../storage";
import type { Checkpoint, NewSandbox, Sandbox } from "../types";

export type View = "sandboxes" | "settings" | "doctor" | "trash" | "project";
/** What the checkpoint a new sandbox begins from is called, and the sandbox it is of. */
export type BeginName = { name: string; title: string };
/** At most one dialog is open. `prefill`: what "Run again" takes over from the sandbox it repeats. */
export type OpenDialog = { kind: "newSandbox"; prefill: Partial<NewSandbox> | null; beginName?: BeginName | null } | { kind: "addProject" } | { kind: "palette" } | { kind: "shortcuts" } | { kind: "link"; url: string }
  /** About the opened sandbox. */
  | { kind: "pullRequest" } | { kind: "pushHeld" } | { kind: "stopNow" } | { kind: "restoreCheckpoint"; checkpoint: Checkpoint }
  | { kind: "purge"; sandbox: Sandbox } | { kind: "emptyTrash" };

/** Where in the window one is; the project and sandbox are found again after a reload. */
export class Navigation {
  #view = $state<View>("sandboxes");
  #project = $state<string | null>(null);
  #sandbox = $state<string | null>(null);
  #dialog = $state.raw<OpenDialog | null>(null);

  constructor() {
    const place = recall("place", isRecord);
    if (typeof place?.project === "string") this.#project = place.project;
    if (typeof place?.sandbox === "string") this.#sandbox = place.sandbox;
  }

  get view(): View { return this.#view; }
  get project(): string | null { return this.#project; }
  get sandbox(): string | null { return this.#sandbox; }
  get dialog(): OpenDialog | null { return this.#dialog; }

  showView(view: View): void {
    this.#view = view;
  }

  showProject(project: string | null): void {
    this.#view = "sandboxes";
    if (project !== this.#project) this.#sandbox = null;
    this.#project = project;
    this.#keep();
  }

  showSandbox(sandbox: string | null): void {
    this.#view = "sandboxes";
    this.#sandbox = sandbox;
    this.#keep();
  }

  open(dialog: OpenDialog): void {
    this.#dialog = dialog;
  }

  closeDialog(): void {
    this.#dialog = null;
  }

  #keep(): void {
    remember("place", { project: this.#project, sandbox: this.#sandbox });
  }
}
