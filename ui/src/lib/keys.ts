/** Which key belongs to whom: what a settings page and a dialog must agree on. */
import type { Agent, Credential, CredentialKind } from "./types";

/** Keys of models, in the order in which they are offered; each has an endpoint of its own, except a subscription's token. */
export const ENDPOINTS = [
  { kind: "anthropic_key", address: "https://api.anthropic.com" },
  { kind: "openai_key", address: "https://api.openai.com/v1" },
  { kind: "openrouter_key", address: "https://openrouter.ai/api/v1" },
  { kind: "compatible_key", address: "http://127.0.0.1:11434/v1" },
] as const satisfies { kind: CredentialKind; address: string }[];

/** Where a person gets a key; null where nobody hands one out. */
export const keySources = {
  anthropic_key: "https://console.anthropic.com/settings/keys",
  claude_oauth_token: null,
  openai_key: "https://platform.openai.com/api-keys",
  openrouter_key: "https://openrouter.ai/settings/keys",
  compatible_key: null,
  github_token: null,
  github_enterprise_token: null,
  e2b_key: "https://e2b.dev/dashboard?tab=keys",
} satisfies Record<CredentialKind, string | null>;

/** Whom a key is for: a model's maker, a forge, or whoever makes machines. Only the first kind is ever given to an agent. */
export type KeyGroup = "models" | "forge" | "machines";
export function groupOf(kind: CredentialKind): KeyGroup {
  if (kind === "github_token" || kind === "github_enterprise_token") return "forge";
  return kind === "e2b_key" ? "machines" : "models";
}

/** Who made the model a key opens: a subscription's token opens the same models as its maker's key. */
const maker = (kind: CredentialKind) => (kind === "claude_oauth_token" ? "anthropic_key" : kind);

/**
 * Whether what the list of agents says of the default model (who pays, what is missing) holds for this one too: an agent whose keys
 * are all of one maker has no other; with any other agent the model decides.
 */
export function holdsFor(agent: Pick<Agent, "kind" | "defaultModel">, model: string, credentials: Credential[]): boolean {
  if (model === (agent.defaultModel ?? "")) return true;
  const makers = new Set(credentials.filter(({ usedBy }) => usedBy.includes(agent.kind)).map(({ kind }) => maker(kind)));
  return makers.size === 1;
}
