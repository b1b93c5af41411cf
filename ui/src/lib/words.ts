/** What statuses, agents, providers and modes are called in the person's language; the engine only knows their codes. */
import { m } from "../paraglide/messages.js";
import type { Activity, AgentKind, CredentialKind, NetworkMode, ProviderKind, Reason, Status } from "./types";

export const statusWords = {
  creating: m.status_creating,
  running: m.status_running,
  paused: m.status_paused,
  killed: m.status_killed,
  error: m.status_error,
} satisfies Record<Status, () => string>;

export const activityWords = {
  none: () => "",
  pausing: m.activity_pausing,
  resuming: m.activity_resuming,
  stopping: m.activity_stopping,
} satisfies Record<Activity, () => string>;

export const reasonWords = {
  stopped: m.reason_stopped,
  timed_out: m.reason_timed_out,
  step_finished: m.reason_step_finished,
  interrupted: m.reason_interrupted,
  lost: m.reason_lost,
  abandoned: m.reason_abandoned,
} satisfies Record<Reason, () => string>;

/** Names of products are the same in every language. */
export const agentNames = { shell: "Shell", claude: "Claude Code", codex: "Codex", opencode: "OpenCode", pi: "Pi" } satisfies Record<AgentKind, string>;

export const providerWords = { local: m.provider_local, docker: m.provider_docker, e2b: m.provider_e2b } satisfies Record<ProviderKind, () => string>;

export const networkWords = { open: m.network_open, listed: m.network_listed, none: m.network_none } satisfies Record<NetworkMode, () => string>;

export const keyWords = { anthropic_key: m.key_anthropic, claude_oauth_token: m.key_claude_oauth, github_token: m.key_github, github_enterprise_token: m.key_github_enterprise } satisfies Record<CredentialKind, () => string>;

/** A transition's reason is a code of the life cycle or an error's kind; an unknown one is shown as it is. */
export function reasonWord(reason: string): string {
  return reason in reasonWords ? reasonWords[reason as Reason]() : reason.replaceAll("_", " ");
}
