import type { Client } from "../ipc/client";
import type { Agent, AgentKind, AgentSettings, AppInfo, Changed, Credential, CredentialKind, DoctorReport, Settings } from "../types";
import { Loading } from "./loading.svelte";

/** What concerns the whole application: settings, keys, agents, the doctor's report. */
export class ApplicationSettings {
  #client: Client;
  readonly settings: Loading<Settings>;
  readonly credentials: Loading<Credential[]>;
  readonly agents: Loading<Agent[]>;
  readonly doctor: Loading<DoctorReport>;
  readonly info: Loading<AppInfo>;

  constructor(client: Client) {
    this.#client = client;
    this.settings = new Loading(() => client.settingsGet());
    this.credentials = new Loading(() => client.credentialList());
    this.agents = new Loading(() => client.agentList());
    this.doctor = new Loading(() => client.doctorRun());
    this.info = new Loading(() => client.appInfo());
  }

  async load(): Promise<void> {
    await Promise.all([this.settings.load(), this.credentials.load(), this.agents.load(), this.info.load()]);
  }

  /** Saves a change, then shows what the engine kept. */
  async save(change: Partial<Settings>): Promise<void> {
    const current = this.settings.value;
    if (current === null) return;
    await this.#client.settingsSet({ ...current, ...change });
    await this.settings.load();
  }

  /** Saves what is set for one agent, then looks for its program again. */
  async saveAgent(kind: AgentKind, to: AgentSettings): Promise<void> {
    await this.save({ agents: { ...this.settings.value?.agents, [kind]: to } });
    await this.agents.load();
  }

  async setKey(kind: CredentialKind, secret: string, isSessionOnly: boolean): Promise<void> {
    await this.#client.credentialSet(kind, secret, isSessionOnly);
    await this.#afterKey();
  }

  async removeKey(kind: CredentialKind): Promise<void> {
    await this.#client.credentialRemove(kind);
    await this.#afterKey();
  }

  apply(change: Changed): void {
    // Where a program or an API is decides whether an agent can start.
    if (change.kind === "settings") void Promise.all([this.settings.load(), this.agents.load()]);
    if (change.kind === "credentials") void this.#afterKey();
  }

  /** Who is billed for an agent depends on the keys. */
  async #afterKey(): Promise<void> {
    await Promise.all([this.credentials.load(), this.agents.load()]);
  }
}
