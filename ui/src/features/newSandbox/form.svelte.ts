/**
 * What the new-sandbox dialog holds. Everything a person has not chosen follows the project's defaults; the draft, without the
 * variables' values, survives closing the dialog and the window.
 */
import { CourierError, type Client } from "../../lib/ipc/client";
import { isRecord, recall, remember } from "../../lib/storage";
import type { Agent, AgentKind, Begin, Issue, NetworkMode, NewSandbox, NewSandboxDefaults, OnTimeout, ProviderKind, Sandbox } from "../../lib/types";

export type Choices = {
  agent: AgentKind; model: string; timeout: string; onTimeout: OnTimeout; memory: string; cpus: string;
  baseBranch: string; branch: string; network: NetworkMode; hosts: string; setupScript: string; title: string; issue: string;
};

type Problem = "prompt" | "project" | "timeout" | "memory" | "cpus" | "variables" | "issue";

export class NewSandboxForm {
  prompt = $state("");
  project = $state("");
  provider = $state<ProviderKind>("local");
  variables = $state<{ id: number; name: string; value: string }[]>([]);
  isMore = $state(false);
  /** Only where the project's source is a folder; asked anew for each sandbox. */
  includesUncommitted = $state(false);
  /** The checkpoint it begins from. */
  begin = $state.raw<Begin | null>(null);
  isStarting = $state(false);
  defaults = $state.raw<NewSandboxDefaults | null>(null);
  /** Why the defaults could not be had, or why the sandbox could not be started. */
  error = $state.raw<CourierError | null>(null);
  /** Only what the person chose: the rest is the project's. */
  /** How much memory each agent needs, in megabytes. */
  memoryOf = $state<Partial<Record<AgentKind, number>>>({});
  #chosen = $state<Partial<Choices>>({});
  /** What it is run again from. */
  #parent: string | null = null;
  #client: Client;
  #lastVariable = 0;
  #asked = 0;

  constructor(client: Client, project: string | null, prefill: Partial<NewSandbox> | null) {
    this.#client = client;
    if (prefill === null) this.#restore();
    else this.#prefill(prefill);
    if (prefill?.project !== undefined) this.project = prefill.project;
    else if (project !== null) this.project = project;
  }

  get<K extends keyof Choices>(key: K): Choices[K] {
    return this.#chosen[key] ?? this.#default(key);
  }

  set<K extends keyof Choices>(key: K, value: Choices[K]): void {
    this.#chosen = { ...this.#chosen, [key]: value };
    // Another agent has other models.
    if (key === "agent") delete this.#chosen.model;
    this.keep();
  }

  addVariable(name = "", value = ""): void {
    this.variables.push({ id: ++this.#lastVariable, name, value });
  }

  removeVariable(id: number): void {
    this.variables = this.variables.filter((variable) => variable.id !== id);
  }

  async loadDefaults(): Promise<void> {
    if (this.project === "") return;
    const asked = ++this.#asked;
    try {
      const defaults = await this.#client.projectDefaults(this.project);
      if (asked !== this.#asked) return;
      this.defaults = defaults;
      this.error = null;
    } catch (thrown) {
      if (asked === this.#asked) this.error = CourierError.from(thrown);
    }
  }

  /** What is wrong with the form, by field; empty when it can be started. */
  readonly problems = $derived.by((): Set<Problem> => {
    const problems = new Set<Problem>();
    if (this.prompt.trim() === "") problems.add("prompt");
    if (this.project === "") problems.add("project");
    if (!(number(this.get("timeout")) > 0)) problems.add("timeout");
    if (!Number.isInteger(number(this.get("memory"))) || number(this.get("memory")) < 64) problems.add("memory");
    if (!(number(this.get("cpus")) > 0)) problems.add("cpus");
    if (this.variables.some(({ name, value }) => (name !== "" || value !== "") && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))) problems.add("variables");
    if (this.get("issue").trim() !== "" && issue(this.get("issue")) === null) problems.add("issue");
    return problems;
  });

  async start(agents: Agent[]): Promise<Sandbox | null> {
    if (this.isStarting || this.problems.size > 0 || this.defaults === null) return null;
    this.isStarting = true;
    this.error = null;
    try {
      const sandbox = await this.#client.sandboxCreate(this.request(agents));
      this.#forget();
      return sandbox;
    } catch (thrown) {
      this.error = CourierError.from(thrown);
      return null;
    } finally {
      this.isStarting = false;
    }
  }

  request(agents: Agent[]): NewSandbox {
    const agent = this.get("agent");
    const known = agents.find((one) => one.kind === agent);
    const text = (key: "title" | "baseBranch" | "branch" | "setupScript") => (this.get(key).trim() === "" ? null : this.get(key).trim());
    return {
      project: this.project, prompt: this.prompt.trim(), agent, provider: this.provider,
      model: this.get("model").trim() !== "" ? this.get("model").trim() : (known?.defaultModel ?? null),
      title: text("title"), baseBranch: text("baseBranch"), branch: text("branch"), setupScript: text("setupScript"),
      timeoutMinutes: number(this.get("timeout")), onTimeout: this.get("onTimeout"), memoryMb: number(this.get("memory")), cpus: number(this.get("cpus")),
      network: this.get("network"), allowedHosts: this.get("network") === "listed" ? hosts(this.get("hosts")) : [],
      variables: this.variables.filter(({ name }) => name !== "").map(({ name, value }) => ({ name, value })),
      parent: this.#parent, begin: this.begin, includesUncommitted: this.includesUncommitted && this.begin === null, issue: issue(this.get("issue")),
    };
  }

  keep(): void {
    remember("draft:new", { prompt: this.prompt, project: this.project, chosen: this.#chosen, isMore: this.isMore });
  }

  #default<K extends keyof Choices>(key: K): Choices[K] {
    const from = this.defaults;
    const all: Choices = {
      agent: from?.agent ?? "shell", model: "", timeout: String(from?.timeoutMinutes ?? 15), onTimeout: from?.onTimeout ?? "kill",
      memory: String(this.memoryOf[this.#chosen.agent ?? from?.agent ?? "shell"] ?? from?.memoryMb ?? 1024), cpus: String(from?.cpus ?? 2), baseBranch: from?.baseBranch ?? "", branch: "",
      network: from?.network ?? "listed", hosts: (from?.allowedHosts ?? []).join("\n"), setupScript: "", title: "", issue: "",
    };
    return all[key];
  }

  #prefill(from: Partial<NewSandbox>): void {
    this.prompt = from.prompt ?? "";
    this.#parent = from.parent ?? null;
    this.begin = from.begin ?? null;
    const chosen: Partial<Choices> = {};
    if (from.agent !== undefined) chosen.agent = from.agent;
    if (from.model) chosen.model = from.model;
    if (from.title) chosen.title = from.title;
    if (from.timeoutMinutes !== undefined) chosen.timeout = String(from.timeoutMinutes);
    if (from.onTimeout !== undefined) chosen.onTimeout = from.onTimeout;
    if (from.memoryMb !== undefined) chosen.memory = String(from.memoryMb);
    if (from.cpus !== undefined) chosen.cpus = String(from.cpus);
    if (from.baseBranch) chosen.baseBranch = from.baseBranch;
    if (from.network !== undefined) chosen.network = from.network;
    if (from.allowedHosts !== undefined && from.network === "listed") chosen.hosts = from.allowedHosts.join("\n");
    if (from.issue) chosen.issue = from.issue.url || String(from.issue.number);
    if (from.setupScript) chosen.setupScript = from.setupScript;
    this.#chosen = chosen;
    for (const { name, value } of from.variables ?? []) this.addVariable(name, value);
  }

  #restore(): void {
    const draft = recall("draft:new", isRecord);
    if (typeof draft?.prompt === "string") this.prompt = draft.prompt;
    if (typeof draft?.project === "string") this.project = draft.project;
    if (draft?.isMore === true) this.isMore = true;
    if (isRecord(draft?.chosen)) this.#chosen = Object.fromEntries(Object.entries(draft.chosen).filter(([, value]) => typeof value === "string")) as Partial<Choices>;
  }

  /** The next sandbox begins afresh, but in the same project. */
  #forget(): void {
    remember("draft:new", null);
  }
}

/** "1,024" and "0.02" and "0,5" are all numbers a person may write; grouping is told from a decimal comma by its three digits. */
export function number(text: string): number {
  const clean = text.trim().replace(/[\s\u00a0\u202f]/g, "");
  if (clean === "") return Number.NaN;
  return Number(/^\d{1,3}(,\d{3})+$/.test(clean) ? clean.replaceAll(",", "") : clean.replace(",", "."));
}

export function hosts(text: string): string[] {
  return [...new Set(text.split(/[\s,;]+/).map((host) => host.trim().toLowerCase()).filter((host) => host !== ""))];
}

/** "12", "#12" or the address of an issue; null where it is neither. */
export function issue(text: string): Issue | null {
  const clean = text.trim();
  const number = /^#?([1-9]\d{0,8})$/.exec(clean)?.[1];
  if (number !== undefined) return { number: Number(number), url: "" };
  const address = /^https?:\/\/[^\s/]+\/[^\s]+\/issues\/([1-9]\d{0,8})\/?(?:[?#]\S*)?$/.exec(clean)?.[1];
  return address === undefined ? null : { number: Number(address), url: clean.replace(/[?#].*$/, "") };
}
