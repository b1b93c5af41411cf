/** The drawn pages' projects, sandboxes and settings, for developing in a plain browser and for tests. */
import type { Agent, Credential, DoctorReport, Machine, NewSandboxDefaults, Project, Sandbox, SandboxDetails, Settings } from "../bindings";
import { opened } from "./work";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function project(id: string, name: string, activeSandboxes: number, sandboxes: number): Project {
  return { id, name, source: `/home/mara/code/${name}`, defaultBranch: "main", activeSandboxes, sandboxes, isSample: name === "sample-notes", canIncludeUncommitted: name !== "tidewater-web", createdAt: Date.now() - 30 * DAY };
}

export const projects = () => [project("p1", "harbor-api", 4, 12), project("p2", "tidewater-web", 2, 5), project("p3", "ledger-tools", 0, 0), project("p4", "sample-notes", 0, 1)];

export function sandbox(id: string, title: string, change: Partial<Sandbox> = {}): Sandbox {
  const createdAt = change.createdAt ?? Date.now() - 20 * MINUTE;
  return {
    id, project: "p1", title, status: "running", activity: "none", step: null, headline: "", reason: null, error: null, agent: "claude", model: "claude-sonnet-4-5", provider: "local",
    isWorking: false, quietMinutes: null, continueAt: null, queued: 0, createdAt, startedAt: createdAt + 4_000, endedAt: null, expiresAt: Date.now() + 12 * MINUTE + 30_000, remainingMs: null, isDeleted: false, deletedAt: null, isUnsaved: false, pullRequest: null, revision: 1, ...change,
  };
}

const ended = (past: number, change: Partial<Sandbox>): Partial<Sandbox> => ({ status: "killed", createdAt: Date.now() - past - 25 * MINUTE, endedAt: Date.now() - past, expiresAt: null, reason: "stopped", ...change });

export const sandboxes = (): Sandbox[] => [
  sandbox("s1", "Rate-limit password resets per account and address", { status: "creating", createdAt: Date.now() - 20_000, startedAt: null, expiresAt: null, step: "cloning repository, step 2 of 4" }),
  sandbox("s2", "Retry idempotent requests with backoff", { isWorking: true, headline: "runs npm test -- retry", createdAt: Date.now() - 14 * MINUTE, queued: 1 }),
  sandbox("s3", "Port date parsing to Temporal", { isWorking: true, headline: "edits src/time/parse.ts", createdAt: Date.now() - 21 * MINUTE }),
  sandbox("s4", "Explain the flaky login test", { headline: "waits for your message", createdAt: Date.now() - 32 * MINUTE }),
  sandbox("s5", "Drop support for Node 18", { activity: "stopping", step: "stopping: pushing branch", createdAt: Date.now() - 38 * MINUTE }),
  sandbox("s6", "Stream the CSV export", { isWorking: true, agent: "shell", model: null, headline: "runs seq 100000", createdAt: Date.now() - 13 * MINUTE, expiresAt: Date.now() + 104_000 }),
  sandbox("s7", "Index the audit log by tenant", { status: "paused", headline: "after turn 4", createdAt: Date.now() - HOUR, expiresAt: null, remainingMs: 9 * MINUTE }),
  sandbox("s8", "Upgrade the gateway to Axum 0.8", ended(2 * HOUR, { status: "error", reason: null, error: { kind: "missing_key", message: "The Anthropic key was rejected.", remedy: "Replace the key in Settings, then run it again." } })),
  sandbox("s9", "Document the webhook retries", ended(3 * HOUR, { headline: "stopped, pull request #412", pullRequest: opened(412) })),
  sandbox("s10", "Cache tenant settings in memory", ended(5 * HOUR, { reason: "timed_out", headline: "timed out, work saved" })),
  sandbox("s11", "Try the new allocator", ended(6 * HOUR, { reason: "lost", isUnsaved: true })),
  sandbox("s12", "Translate e-mail templates to French", ended(DAY + 3 * HOUR, { headline: "stopped, #408 merged", pullRequest: opened(408, { status: "merged" }) })),
  sandbox("s13", "Find who writes /tmp/courier.lock", ended(2 * DAY, { headline: "step finished, no changes", reason: "step_finished" })),
  sandbox("s14", "Reihenfolge der Datenschutzgrundverordnungsprüfungsergebnisse korrigieren", { project: "p2", headline: "waits for your message", createdAt: Date.now() - 50 * MINUTE, expiresAt: Date.now() + 100 * MINUTE }),
  sandbox("s15", "Measure the JSON encoders", ended(4 * HOUR, { headline: "stopped, #401 closed", pullRequest: opened(401, { isClosed: true }) })),
  sandbox("s16", "Try three allocators against the frame benchmark", ended(2 * DAY, { isDeleted: true, deletedAt: Date.now() - 2 * HOUR })),
  sandbox("s17", "Rename the tenants table", ended(5 * DAY, { isDeleted: true, deletedAt: Date.now() - 3 * DAY, pullRequest: opened(377, { status: "merged" }) })),
];

/** One sandbox of each further agent: one prints whole rows, one is quiet, one has met a limit. */
export const ofAgents = (): Sandbox[] => [
  sandbox("s18", "Split the pricing rules out of the cart", { agent: "codex", model: "gpt-5.2-codex", isWorking: true, headline: "runs cargo test -p pricing", createdAt: Date.now() - 9 * MINUTE }),
  sandbox("s19", "Make the importer survive a torn file", { agent: "opencode", model: "openrouter/qwen/qwen3-coder", isWorking: true, quietMinutes: 7, headline: "edits src/import/reader.go", createdAt: Date.now() - 27 * MINUTE }),
  sandbox("s20", "Replace the date picker", { agent: "pi", model: "anthropic/claude-sonnet-4-5", headline: "waits for your message", createdAt: Date.now() - 11 * MINUTE }),
];

const AGENTS = {
  shell: { name: "Shell", version: null, billedTo: null },
  claude: { name: "Claude Code", version: "2.1.4", billedTo: "Anthropic key, …x7Qd" },
  codex: { name: "Codex", version: "0.98.0", billedTo: "OpenAI key, …k2Rp" },
  opencode: { name: "OpenCode", version: "1.4.7", billedTo: "OpenRouter key, …9fTb" },
  pi: { name: "Pi", version: "0.54.0", billedTo: "Anthropic key, …x7Qd" },
};

export function details(of: Sandbox): SandboxDetails {
  return {
    sandbox: of, agentName: AGENTS[of.agent].name, agentVersion: AGENTS[of.agent].version, billedTo: AGENTS[of.agent].billedTo, isKeyInside: false,
    timeoutMinutes: 25, onTimeout: "kill", memoryMb: 1024, cpus: 2, limitsEnforced: true, network: "listed", allowedHosts: ["api.anthropic.com", "github.com", "registry.example.org", "packages.example.org"],
    variables: ["DATABASE_URL", "LOG_LEVEL"], origin: "standalone", parent: null, repository: "example/harbor-api", baseBranch: "main", baseCommit: "4be19c2f0d6e1f7a", branch: "courier/retry-backoff",
    workspace: "/home/mara/.local/share/codecourier/sandboxes/0192f1c4/workspace", runningMs: 12 * MINUTE + 51_000, pausedMs: 80_000, turns: 3,
    usage: of.agent === "shell" ? { input: 0, output: 0, cacheWrite: 0, cacheRead: 0, isIncomplete: false } : { input: 18_204, output: 9_310, cacheWrite: 16_880, cacheRead: 512_904, isIncomplete: false },
    queue: [], canSend: of.id !== "s13",
    transitions: [
      { from: null, to: "creating", reason: null, at: of.createdAt },
      ...(of.startedAt === null ? [] : [{ from: "creating" as const, to: "running" as const, reason: null, at: of.startedAt }]),
      ...(of.status === "paused" ? [{ from: "running" as const, to: "paused" as const, reason: null, at: Date.now() - 14 * MINUTE }] : []),
      ...(of.endedAt === null ? [] : [{ from: "running" as const, to: of.status, reason: of.reason ?? of.error?.kind ?? null, at: of.endedAt }]),
    ],
  };
}

export const agents = (): Agent[] => [
  { kind: "claude", name: "Claude Code", models: [{ id: "claude-sonnet-4-5", name: "Sonnet 4.5" }, { id: "claude-opus-4-5", name: "Opus 4.5" }, { id: "claude-haiku-4-5", name: "Haiku 4.5" }], defaultModel: "claude-sonnet-4-5", needsKey: true, isInstalled: true, version: "2.1.4", billedTo: "Anthropic key, …x7Qd", isKeyInside: false, problem: null, memoryMb: 1024, efforts: ["low", "medium", "high", "max"] },
  { kind: "codex", name: "Codex", models: [{ id: "gpt-5.2-codex", name: "GPT-5.2 Codex" }], defaultModel: "gpt-5.2-codex", needsKey: true, isInstalled: false, version: null, billedTo: null, isKeyInside: false, problem: "Codex was not found on this computer. Run npm install -g @openai/codex, then look again.", memoryMb: 1024, efforts: ["minimal", "low", "medium", "high", "xhigh"] },
  { kind: "opencode", name: "OpenCode", models: [{ id: "anthropic/claude-sonnet-4-5", name: "Sonnet 4.5 (Anthropic)" }, { id: "openai/gpt-5.2", name: "GPT-5.2 (OpenAI)" }], defaultModel: "anthropic/claude-sonnet-4-5", needsKey: true, isInstalled: true, version: "1.4.7", billedTo: "Anthropic key, …x7Qd", isKeyInside: false, problem: null, memoryMb: 4096, efforts: [] },
  { kind: "pi", name: "Pi", models: [{ id: "openai/gpt-5.2", name: "GPT-5.2 (OpenAI)" }], defaultModel: "openai/gpt-5.2", needsKey: true, isInstalled: true, version: "0.54.0", billedTo: null, isKeyInside: false, problem: "There is no key for Pi (OpenAI key). Set it in Settings, under Keys.", memoryMb: 1024, efforts: ["off", "minimal", "low", "medium", "high"] },
  { kind: "shell", name: "Shell", models: [], defaultModel: null, needsKey: false, isInstalled: true, version: null, billedTo: null, isKeyInside: false, problem: null, memoryMb: 1024, efforts: [] },
];

export const credentials = (): Credential[] => [
  { kind: "anthropic_key", name: "Anthropic key", isSet: true, lastFour: "x7Qd", isSessionOnly: false, usedBy: ["claude", "opencode", "pi"] },
  { kind: "claude_oauth_token", name: "Claude subscription token", isSet: false, lastFour: null, isSessionOnly: false, usedBy: ["claude"] },
  { kind: "openai_key", name: "OpenAI key", isSet: false, lastFour: null, isSessionOnly: false, usedBy: ["codex", "opencode", "pi"] },
  { kind: "openrouter_key", name: "OpenRouter key", isSet: false, lastFour: null, isSessionOnly: false, usedBy: ["opencode", "pi"] },
  { kind: "compatible_key", name: "Key of an OpenAI-compatible server", isSet: false, lastFour: null, isSessionOnly: false, usedBy: ["codex", "opencode", "pi"] },
  { kind: "github_token", name: "GitHub token", isSet: false, lastFour: null, isSessionOnly: false, usedBy: [] },
  { kind: "github_enterprise_token", name: "GitHub Enterprise token", isSet: false, lastFour: null, isSessionOnly: false, usedBy: [] },
  { kind: "e2b_key", name: "E2B key", isSet: true, lastFour: "4d2e", isSessionOnly: false, usedBy: [] },
];

export const machines = (): Machine[] => [
  { id: "i8casuv3or92nlrpmd0p", isPaused: false, template: "claude-code", since: new Date(Date.now() - 3 * HOUR).toISOString(), isOfAnother: false },
  { id: "ik2b7p04tqx1c9e6ajw3", isPaused: true, template: "base", since: new Date(Date.now() - 2 * DAY).toISOString(), isOfAnother: true },
];

export const settings = (): Settings => ({
  theme: "system", notifications: { creating: false, running: false, paused: true, killed: true, error: true },
  agents: { claude: { path: null, effort: "high", extraArguments: ["--add-dir", "/home/mara/shared notes"] } }, baseUrls: { compatible_key: "http://127.0.0.1:11434/v1" },
  githubEnterpriseHost: null, e2b: { domain: null, apiUrl: null, sandboxUrl: null, templates: { claude: "claude-code" } }, quietAfterMinutes: 5, hasSeenCloseNotice: false,
});

export const defaults = (): NewSandboxDefaults => ({ agent: "claude", provider: "local", timeoutMinutes: 15, memoryMb: 1024, cpus: 2, hostCpus: 16, network: "listed", allowedHosts: ["github.com", "packages.example.org"], baseBranch: "main", branches: ["main", "develop", "release/2.8"], onTimeout: "kill", branchPrefix: "courier/" });

export const doctor = (): DoctorReport => ({
  ranAt: Date.now(),
  checks: [
    { id: "claude", name: "Claude Code", state: "ok", found: "2.1.4, signed in by key · ~/.local/bin/claude", lookedFor: ["~/.local/bin/claude", "~/.claude/local/claude", "/usr/local/bin/claude"], remedy: null },
    { id: "codex", name: "Codex", state: "notFound", found: "not found", lookedFor: ["~/.nvm/versions/node/v22/bin/codex", "/usr/local/bin/codex"], remedy: "npm install -g @openai/codex" },
    { id: "opencode", name: "OpenCode", state: "ok", found: "1.4.7 · ~/.opencode/bin/opencode", lookedFor: ["~/.opencode/bin/opencode"], remedy: null },
    { id: "pi", name: "Pi", state: "warning", found: "0.54.0, no key", lookedFor: ["~/.nvm/versions/node/v22/bin/pi"], remedy: "Set an OpenAI key in Settings, under Keys." },
    { id: "shell", name: "Shell", state: "ok", found: "always there, needs no key", lookedFor: [], remedy: null },
    { id: "local", name: "Local sandboxes", state: "ok", found: "bubblewrap 0.8.0, limits enforced by cgroups", lookedFor: ["/usr/bin/bwrap"], remedy: null },
    { id: "docker", name: "Docker", state: "warning", found: "installed, but your user may not open its socket", lookedFor: ["/var/run/docker.sock"], remedy: "Add yourself to the group docker, then log in again." },
    { id: "git", name: "Git", state: "ok", found: "2.39.5", lookedFor: [], remedy: null },
    { id: "keychain", name: "Keychain", state: "failed", found: "no Secret Service answers", lookedFor: ["org.freedesktop.secrets"], remedy: "Install gnome-keyring or KWallet and log in again." },
  ],
});
