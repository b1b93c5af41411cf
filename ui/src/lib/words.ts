/** What statuses, agents, providers and modes are called in the person's language; the engine only knows their codes. */
import { m } from "../paraglide/messages.js";
import type { Activity, AgentKind, ChangeKind, CredentialKind, DeliverWhen, NetworkMode, ProviderKind, PullRequest, Reason, Sandbox, Status, StepKind, StepStatus } from "./types";

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

export const keyWords = {
  anthropic_key: m.key_anthropic,
  claude_oauth_token: m.key_claude_oauth,
  openai_key: m.key_openai,
  openrouter_key: m.key_openrouter,
  compatible_key: m.key_compatible,
  github_token: m.key_github,
  github_enterprise_token: m.key_github_enterprise,
  e2b_key: m.key_e2b,
} satisfies Record<CredentialKind, () => string>;

/** What an agent's programs are called where a person types them. */
export const programNames = { shell: "sh", claude: "claude", codex: "codex", opencode: "opencode", pi: "pi" } satisfies Record<AgentKind, string>;

const efforts: Record<string, () => string> = { none: m.effort_none, off: m.effort_off, minimal: m.effort_minimal, low: m.effort_low, medium: m.effort_medium, high: m.effort_high, xhigh: m.effort_xhigh, max: m.effort_max };

/** An effort is a word of the agent's; one we have no word for is shown as it is. */
export const effortWord = (effort: string): string => efforts[effort]?.() ?? effort;

/** What is said of a file that did not just change inside. */
export const changeWords = {
  added: m.change_added,
  modified: () => "",
  deleted: m.change_deleted,
  renamed: m.change_renamed,
  type_changed: m.change_type,
  mode: m.change_mode,
} satisfies Record<ChangeKind, () => string>;

/** A step of an ending: what it is called while it has not happened, happens, and has. */
export const stepWords = {
  stop_agent: { pending: m.step_stop_agent, running: m.step_stop_agent_running, done: m.step_stop_agent_done },
  checkpoint: { pending: m.step_checkpoint, running: m.step_checkpoint_running, done: m.step_checkpoint_done },
  commit: { pending: m.step_commit, running: m.step_commit_running, done: m.step_commit_done },
  push: { pending: m.step_push, running: m.step_push_running, done: m.step_push_done },
  pull_request: { pending: m.step_pull_request, running: m.step_pull_request_running, done: m.step_pull_request_done },
  destroy: { pending: m.step_destroy, running: m.step_destroy_running, done: m.step_destroy_done },
} satisfies Record<StepKind, Record<"pending" | "running" | "done", () => string>>;

export const stepStatusWords = { pending: m.step_pending, running: m.step_running, done: m.step_done, skipped: m.step_skipped, failed: m.step_failed, held: m.step_held } satisfies Record<StepStatus, () => string>;

/** A step in the words that fit its status. */
export function stepWord(kind: StepKind, status: StepStatus): string {
  return stepWords[kind][status === "running" || status === "done" ? status : "pending"]();
}

/** A pull request's state in one word: open, merged, closed. */
export function pullRequestWord(pullRequest: PullRequest): string {
  if (pullRequest.status === "created") return pullRequest.isClosed ? m.pr_closed() : m.pr_open();
  return { creating: m.pr_creating, failed: m.pr_failed, skipped: m.pr_skipped, merged: m.pr_merged }[pullRequest.status]();
}

export const deliverWords = { on_turn: m.deliver_on_turn, on_end: m.deliver_on_end, ask: m.deliver_ask, never: m.deliver_never } satisfies Record<DeliverWhen, () => string>;

/** Why a sandbox ended, and what became of its work: the fact a list has room for. */
export function endWord(sandbox: Pick<Sandbox, "reason" | "headline" | "pullRequest">): string {
  const reason = sandbox.reason === null ? sandbox.headline : reasonWords[sandbox.reason]();
  const { pullRequest } = sandbox;
  if (pullRequest?.number == null || pullRequest.status === "failed" || pullRequest.status === "skipped") return reason;
  const { number } = pullRequest;
  return pullRequest.status === "merged" || pullRequest.isClosed ? m.row_pull_request_is({ reason, number, state: pullRequestWord(pullRequest) }) : m.row_pull_request({ reason, number });
}

/** A transition's reason is a code of the life cycle or an error's kind; an unknown one is shown as it is. */
export function reasonWord(reason: string): string {
  return reason in reasonWords ? reasonWords[reason as Reason]() : reason.replaceAll("_", " ");
}
