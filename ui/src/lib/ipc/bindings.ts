// CONTRACT (hand-written until the shell generates it; the generated file has exactly these names and shapes).
import { invoke as __TAURI_INVOKE, Channel } from "@tauri-apps/api/core";
import { listen } from "@tauri-apps/api/event";

export const commands = {
	// ── projects ──
	projectList: () => typedError<Project[], IpcError>(__TAURI_INVOKE("project_list")),
	/** `source`: a folder on this machine or a URL. */
	projectAdd: (source: string, name: string | null) => typedError<Project, IpcError>(__TAURI_INVOKE("project_add", { source, name })),
	/** Makes (or finds) the sample project that works without key or network. */
	projectSample: () => typedError<Project, IpcError>(__TAURI_INVOKE("project_sample")),
	/** What a new sandbox of this project gets when nothing else is said, and who would be billed, per agent. */
	projectDefaults: (project: string) => typedError<NewSandboxDefaults, IpcError>(__TAURI_INVOKE("project_defaults", { project })),
	// ── sandboxes ──
	/** One page, newest first; `after` is the previous page's `next`. */
	sandboxList: (query: SandboxQuery) => typedError<SandboxPage, IpcError>(__TAURI_INVOKE("sandbox_list", { query })),
	sandboxGet: (id: string) => typedError<SandboxDetails, IpcError>(__TAURI_INVOKE("sandbox_get", { id })),
	sandboxCreate: (request: NewSandbox) => typedError<Sandbox, IpcError>(__TAURI_INVOKE("sandbox_create", { request })),
	/** `how`: queue after this turn, or interrupt it and send at once. */
	sandboxSend: (id: string, content: string, how: SendHow) => typedError<Message, IpcError>(__TAURI_INVOKE("sandbox_send", { id, content, how })),
	sandboxInterrupt: (id: string) => typedError<null, IpcError>(__TAURI_INVOKE("sandbox_interrupt", { id })),
	sandboxPause: (id: string) => typedError<null, IpcError>(__TAURI_INVOKE("sandbox_pause", { id })),
	sandboxResume: (id: string) => typedError<null, IpcError>(__TAURI_INVOKE("sandbox_resume", { id })),
	/** Asked twice: stops without waiting for a graceful end. */
	sandboxStop: (id: string) => typedError<null, IpcError>(__TAURI_INVOKE("sandbox_stop", { id })),
	/** Gives it `minutes` more. */
	sandboxExtend: (id: string, minutes: number) => typedError<null, IpcError>(__TAURI_INVOKE("sandbox_extend", { id, minutes })),
	/** A queued message only. */
	messageEdit: (id: string, content: string) => typedError<null, IpcError>(__TAURI_INVOKE("message_edit", { id, content })),
	messageCancel: (id: string) => typedError<null, IpcError>(__TAURI_INVOKE("message_cancel", { id })),
	// ── one open sandbox ──
	/** The newest page of rows, and numbered frames from there on over the channel. */
	transcriptOpen: (sandbox: string, frames: Channel<Frame>) => typedError<Snapshot, IpcError>(__TAURI_INVOKE("transcript_open", { sandbox, frames })),
	/** Says that frame `number` has been applied; unacknowledged frames are bounded, so a silent reader gets a `gap`. */
	transcriptAcknowledge: (subscription: number, number: number) => typedError<null, IpcError>(__TAURI_INVOKE("transcript_acknowledge", { subscription, number })),
	transcriptClose: (subscription: number) => typedError<null, IpcError>(__TAURI_INVOKE("transcript_close", { subscription })),
	/** Rows before row `before`, oldest first, at most 200. */
	transcriptBefore: (sandbox: string, before: number) => typedError<Row[], IpcError>(__TAURI_INVOKE("transcript_before", { sandbox, before })),
	/** Raw log: at most 256 KiB after `cursor` (null: the last 256 KiB). Base64 of the bytes. Pull again when a frame's `logEnd` is past `next`. */
	logRead: (sandbox: string, cursor: number | null) => typedError<LogPage, IpcError>(__TAURI_INVOKE("log_read", { sandbox, cursor })),
	// ── agents, keys, settings, doctor ──
	agentList: () => typedError<Agent[], IpcError>(__TAURI_INVOKE("agent_list")),
	credentialList: () => typedError<Credential[], IpcError>(__TAURI_INVOKE("credential_list")),
	/** The only time a secret crosses to Rust. `sessionOnly` keeps it in memory where there is no keychain. */
	credentialSet: (kind: CredentialKind, secret: string, sessionOnly: boolean) => typedError<Credential, IpcError>(__TAURI_INVOKE("credential_set", { kind, secret, sessionOnly })),
	credentialRemove: (kind: CredentialKind) => typedError<null, IpcError>(__TAURI_INVOKE("credential_remove", { kind })),
	settingsGet: () => typedError<Settings, IpcError>(__TAURI_INVOKE("settings_get")),
	settingsSet: (settings: Settings) => typedError<null, IpcError>(__TAURI_INVOKE("settings_set", { settings })),
	doctorRun: () => typedError<DoctorReport, IpcError>(__TAURI_INVOKE("doctor_run")),
	/** The person agreed to open this http(s) or mailto link outside. */
	linkOpen: (url: string) => typedError<null, IpcError>(__TAURI_INVOKE("link_open", { url })),
	/** A native folder chooser; null when dismissed. */
	folderChoose: () => typedError<string | null, IpcError>(__TAURI_INVOKE("folder_choose")),
	appInfo: () => typedError<AppInfo, IpcError>(__TAURI_INVOKE("app_info")),
};

export const events = {
	/** Everything that changed, in revision order. Ignore a change whose revision is not newer than what is shown. */
	changed: { listen: (handler: (event: { payload: Changed }) => void) => listen<Changed>("changed", handler) },
	/** The tray, a notification or a second start asks the window to show something. */
	navigate: { listen: (handler: (event: { payload: Navigate }) => void) => listen<Navigate>("navigate", handler) },
};

/* Types. Times are Unix milliseconds. */
export type IpcError = { code: ErrorCode; message: string; detail: string | null };
export type ErrorCode =
	| "notFound" | "invalid" | "notARepository" | "emptyRepository" | "bareRepository" | "pathMissing" | "pathIsFile"
	| "illegalState" | "workflowSandbox" | "missingCli" | "missingKey" | "noKeychain" | "noJail" | "unsupported"
	| "databaseBusy" | "databaseNewer" | "databaseDamaged" | "diskFull" | "network" | "alreadyOpen" | "shuttingDown" | "internal";

export type Status = "creating" | "running" | "paused" | "killed" | "error";
export type Activity = "none" | "pausing" | "resuming" | "stopping";
export type Reason = "stopped" | "timed_out" | "step_finished" | "interrupted" | "lost" | "abandoned";
export type AgentKind = "shell" | "claude" | "codex" | "opencode" | "pi";
export type ProviderKind = "local" | "docker" | "e2b";
export type NetworkMode = "open" | "listed" | "none";
export type OnTimeout = "kill" | "pause";
export type SendHow = "queue" | "interrupt";
export type ErrorKind = "missing_cli" | "missing_key" | "rejected_key" | "permission" | "billing" | "rate_limited" | "overloaded"
	| "context_too_long" | "limit_reached" | "network" | "session_not_found" | "interrupted" | "crashed" | "other";

export type Project = {
	id: string; name: string;
	/** Where it came from: a path or a URL without secrets. */
	source: string; defaultBranch: string; activeSandboxes: number; sandboxes: number; isSample: boolean; createdAt: number;
};

export type NewSandboxDefaults = {
	agent: AgentKind; provider: ProviderKind; timeoutMinutes: number; memoryMb: number; cpus: number; hostCpus: number;
	network: NetworkMode; allowedHosts: string[]; baseBranch: string; branches: string[]; onTimeout: OnTimeout;
	/** A branch name made from nothing yet: `courier/<slug>`; the engine fills the slug in from the title. */
	branchPrefix: string;
};

export type Sandbox = {
	id: string; project: string; title: string; status: Status; activity: Activity;
	/** What the work in hand does now: "cloning repository, step 2 of 4", "stopping: ending the agent"; null when nothing is in hand. */
	step: string | null;
	/** What happens now or happened last, one line: "runs npm test", "waits for your message". */
	headline: string;
	reason: Reason | null; error: SandboxError | null; agent: AgentKind; model: string | null; provider: ProviderKind;
	isWorking: boolean; queued: number; createdAt: number; startedAt: number | null; endedAt: number | null; expiresAt: number | null;
	/** Running milliseconds left while paused (the clock stands still). */
	remainingMs: number | null;
	isDeleted: boolean; isUnsaved: boolean; revision: number;
};
export type SandboxError = { kind: string; message: string; remedy: string };

export type SandboxDetails = {
	sandbox: Sandbox; agentName: string; agentVersion: string | null; billedTo: string | null;
	timeoutMinutes: number; onTimeout: OnTimeout; memoryMb: number; cpus: number; limitsEnforced: boolean;
	network: NetworkMode; allowedHosts: string[]; variables: string[]; origin: string; parent: string | null;
	repository: string; baseBranch: string; baseCommit: string; branch: string; workspace: string | null;
	runningMs: number; pausedMs: number; turns: number; usage: Usage; queue: Message[]; transitions: Transition[];
	/** False where a person may not write (a workflow's sandbox). */
	canSend: boolean;
};
export type Transition = { from: Status | null; to: Status; reason: string | null; at: number };
export type Usage = { input: number; output: number; cacheWrite: number; cacheRead: number; isIncomplete: boolean };

export type SandboxQuery = { project: string | null; statuses: Status[]; search: string | null; after: string | null; limit: number };
export type SandboxPage = { rows: Sandbox[]; next: string | null; total: number; revision: number };

export type NewSandbox = {
	project: string; prompt: string; title: string | null; agent: AgentKind; model: string | null; provider: ProviderKind;
	timeoutMinutes: number; onTimeout: OnTimeout; memoryMb: number; cpus: number; network: NetworkMode; allowedHosts: string[];
	baseBranch: string | null; branch: string | null; setupScript: string | null; variables: Variable[];
};
export type Variable = { name: string; value: string };

export type Message = { id: string; seq: number; role: "user" | "assistant"; content: string; status: "streaming" | "completed" | "error"; delivery: "queued" | "delivered" | null; createdAt: number };

export type Snapshot = { subscription: number; revision: number; rows: Row[]; hasOlder: boolean; logEnd: number; queue: Message[] };
/** Frames are numbered from 1 without holes; after a hole, or `gap`, open again. */
export type Frame = {
	number: number; revision: number; gap: boolean;
	/** New rows, or rows that replace the one with the same `at`. */
	rows: Row[];
	/** Text to add to the end of a row's text, output or thinking. */
	appends: Append[];
	logEnd: number; queue: Message[] | null;
};
export type Append = { at: number; text: string };
/** One row of the conversation, ordered by `at` (unique in its sandbox). `turn` numbers turns from 1. */
export type Row = { at: number; turn: number; time: number; item: Item };
export type Item =
	/** A person's message: it begins its turn. */
	| { kind: "message"; text: string; messageId: string }
	| { kind: "text"; text: string }
	| { kind: "thinking"; text: string }
	/** What a Shell sandbox or a command printed: may hold ANSI colours. */
	| { kind: "output"; text: string; isStderr: boolean }
	| { kind: "tool"; callId: string; tool: ToolKind; name: string; summary: string; input: string; state: ToolState; result: string | null; exitCode: number | null; durationMs: number | null; diff: FileDiff | null }
	| { kind: "notice"; level: NoticeLevel; text: string; retryAt: number | null }
	| { kind: "error"; error: ErrorKind; message: string; retryAt: number | null }
	| { kind: "progress"; entries: ProgressEntry[] }
	/** The end of a turn. */
	| { kind: "ended"; status: "completed" | "error"; error: ErrorKind | null; exitCode: number | null; durationMs: number | null; usage: Usage | null }
	/** What the parser does not know, as it came. */
	| { kind: "unknown"; raw: string };
export type ToolKind = "edit" | "write" | "read" | "search" | "command" | "web" | "plan" | "other";
export type ToolState = "running" | "done" | "failed";
export type NoticeLevel = "info" | "warning";
export type FileDiff = { path: string; added: number; removed: number; patch: string };
export type ProgressEntry = { text: string; state: "pending" | "active" | "done" };
export type LogPage = { base64: string; next: number; end: number; isTruncated: boolean };

export type Agent = { kind: AgentKind; name: string; models: Model[]; defaultModel: string | null; needsKey: boolean; isInstalled: boolean; version: string | null; billedTo: string | null; problem: string | null };
export type Model = { id: string; name: string };
export type CredentialKind = "anthropic_key" | "claude_oauth_token";
export type Credential = { kind: CredentialKind; name: string; isSet: boolean; lastFour: string | null; isSessionOnly: boolean; usedBy: AgentKind[] };
export type Settings = {
	theme: "system" | "light" | "dark"; notifications: Record<Status, boolean>; claudePath: string | null;
	/** Where the Anthropic API is: null means Anthropic's own. */
	anthropicBaseUrl: string | null; hasSeenCloseNotice: boolean;
};
export type DoctorReport = { checks: DoctorCheck[]; ranAt: number };
/** `notFound` is a dash, not an alarm: something optional is absent. */
export type DoctorCheck = { id: string; name: string; state: "ok" | "warning" | "failed" | "notFound"; found: string; lookedFor: string[]; remedy: string | null };
export type AppInfo = { version: string; dataDirectory: string; platform: string; safeMode: boolean };

export type Changed =
	| { kind: "sandbox"; revision: number; sandbox: Sandbox }
	| { kind: "project"; revision: number; project: Project }
	| { kind: "credentials"; revision: number }
	| { kind: "settings"; revision: number };
export type Navigate = { kind: "sandbox"; id: string } | { kind: "newSandbox" } | { kind: "settings" } | { kind: "doctor" };

async function typedError<T, E>(result: Promise<T>): Promise<{ status: "ok"; data: T } | { status: "error"; error: E }> {
    try {
        return { status: "ok", data: await result };
    } catch (e) {
        if (e instanceof Error) throw e;
        return { status: "error", error: e as any };
    }
}
