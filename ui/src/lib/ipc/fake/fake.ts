/**
 * An engine made of arrays. `?scene=` chooses what it shows: full (default), agents, first, empty, loading, error, firehose,
 * long. It never reaches the production bundle.
 */
import { CourierError, type Client } from "../client";
import type { Changed, Delivery, ErrorCode, Frame, Message, NewSandbox, Row, Sandbox, Snapshot } from "../bindings";
import { olderRows, rows, STEPS, STREAM, turnsOf } from "./conversation";
import * as data from "./data";
import * as work from "./work";

/** How many rows a long conversation has before those it opens with. */
const OLDER = 100_000;

const never = () => new Promise<never>(() => {});
export const failure = (code: ErrorCode, message: string) => new CourierError({ code, message, detail: null });

export function createFake(parameters: URLSearchParams): Client {
  const scene = parameters.get("scene") ?? "full";
  let projects = scene === "first" ? [] : data.projects();
  let sandboxes = scene === "empty" || scene === "first" ? [] : [...(scene === "agents" ? data.ofAgents() : []), ...data.sandboxes()];
  let credentials = data.credentials();
  let settings = data.settings();
  let machines = data.machines();
  let projectSettings = work.projectSettings();
  const delivered = new Map<string, Partial<Delivery>>();
  const listeners = new Set<(change: Changed) => void>();
  const timers = new Map<number, ReturnType<typeof setInterval>>();
  let revision = 1;
  let subscriptions = 0;

  const find = (id: string): Sandbox => {
    const found = sandboxes.find((row) => row.id === id);
    if (found === undefined) throw failure("notFound", `no sandbox ${id}`);
    return found;
  };
  const emit = (change: Changed) => listeners.forEach((listener) => listener(change));
  const change = (id: string, to: Partial<Sandbox>) => {
    const sandbox = { ...find(id), ...to, revision: ++revision };
    sandboxes = sandboxes.map((row) => (row.id === id ? sandbox : row));
    emit({ kind: "sandbox", revision, sandbox });
  };
  const later = (id: string, to: Partial<Sandbox>) => setTimeout(() => change(id, to), 1_200);
  const queueOf = (sandbox: Sandbox): Message[] =>
    sandbox.queued === 0 ? [] : [{ id: "q1", seq: 4, role: "user", content: "then add a line to CHANGELOG.md under 2.8", status: "completed", delivery: "queued", createdAt: Date.now() }];

  function stream(sandbox: Sandbox, subscription: number, first: Row[], onFrame: (frame: Frame) => void): void {
    let number = 0;
    let at = first.at(-1)?.at ?? 0;
    const frame = (part: Partial<Frame>) => onFrame({ number: ++number, revision, gap: false, rows: [], appends: [], logEnd: number * 100, queue: null, ...part });
    if (sandbox.agent === "shell" || scene === "firehose") {
      let line = 0;
      timers.set(subscription, setInterval(() => {
        const text = () => Array.from({ length: 10 }, () => `line ${++line} \u001b[36m${"·".repeat(line % 40)}\u001b[0m\n`).join("");
        frame({ rows: Array.from({ length: scene === "firehose" ? 15 : 1 }, () => ({ at: ++at, turn: 2, time: Date.now(), item: { kind: "output", text: text(), isStderr: false } })) });
      }, scene === "firehose" ? 30 : 700));
    } else if (sandbox.agent === "codex") {
      // It prints whole rows, now and then; nothing streams.
      let step = 0;
      timers.set(subscription, setInterval(() => {
        const item = STEPS[step++ % STEPS.length];
        if (item !== undefined) frame({ rows: [{ at: ++at, turn: first.at(-1)?.turn ?? 1, time: Date.now(), item }] });
      }, 4_000));
    } else if (sandbox.quietMinutes === null) {
      let said = 0;
      timers.set(subscription, setInterval(() => {
        const text = STREAM.slice(said, said + 6);
        said = (said + 6) % STREAM.length;
        frame({ appends: [{ at, text }] });
      }, 60));
    }
  }

  const client: Client = {
    projectList: async () => (scene === "loading" ? never() : projects),
    projectAdd: async (source, name) => {
      if (source.includes("nothing")) throw failure("pathMissing", `${source}: no such directory`);
      const added = data.project(`p${projects.length + 1}`, name ?? source.split("/").at(-1) ?? source, 0, 0);
      projects = [...projects, added];
      return added;
    },
    projectSample: async () => client.projectAdd("/sample-notes", null),
    projectDefaults: async () => data.defaults(),
    sandboxList: async (query) => {
      if (scene === "loading") return never();
      if (scene === "error") throw failure("databaseBusy", "database is locked");
      const matching = sandboxes.filter((row) => !row.isDeleted && query.statuses.includes(row.status) && (query.project === null || row.project === query.project) && (query.search === null || row.title.toLowerCase().includes(query.search.toLowerCase())));
      return { rows: matching, next: null, total: matching.length, revision };
    },
    sandboxGet: async (id) => (scene === "loading" ? never() : data.details(find(id))),
    sandboxCreate: async (request: NewSandbox) => {
      if (request.agent === "codex") throw failure("missingCli", "looked for codex in 9 folders");
      const made = data.sandbox(`n${sandboxes.length}`, request.title ?? request.prompt.slice(0, 60), { project: request.project, agent: request.agent, model: request.model, status: "creating", step: "cloning repository, step 2 of 4", createdAt: Date.now(), expiresAt: null, revision: ++revision });
      sandboxes = [made, ...sandboxes];
      emit({ kind: "sandbox", revision, sandbox: made });
      later(made.id, { status: "running", step: null, headline: "waits for your message", expiresAt: Date.now() + request.timeoutMinutes * 60_000 });
      return made;
    },
    sandboxSend: async (id, content) => {
      change(id, { isWorking: true });
      return { id: "m9", seq: 9, role: "user", content, status: "completed", delivery: "delivered", createdAt: Date.now() };
    },
    sandboxInterrupt: async (id) => (change(id, { isWorking: false, quietMinutes: null, headline: "waits for your message" }), null),
    sandboxPause: async (id) => {
      change(id, { activity: "pausing", step: "pausing: saving a checkpoint" });
      later(id, { status: "paused", activity: "none", step: null, expiresAt: null, remainingMs: 9 * 60_000, headline: "after turn 3" });
      return null;
    },
    sandboxResume: async (id) => {
      change(id, { activity: "resuming", step: "resuming: starting the keeper" });
      later(id, { status: "running", activity: "none", step: null, expiresAt: Date.now() + 9 * 60_000, remainingMs: null });
      return null;
    },
    sandboxStop: async (id) => {
      change(id, { activity: "stopping", step: "stopping: ending the agent" });
      later(id, { status: "killed", activity: "none", step: null, reason: "stopped", endedAt: Date.now(), isWorking: false, expiresAt: null });
      return null;
    },
    sandboxExtend: async (id, minutes) => (change(id, { expiresAt: (find(id).expiresAt ?? Date.now()) + (minutes ?? 0) * 60_000 }), null),
    sandboxContinueAt: async (id, at) => (change(id, { continueAt: at }), null),
    messageEdit: async () => null,
    messageCancel: async () => null,
    transcriptOpen: async (id, onFrame): Promise<Snapshot> => {
      if (scene === "loading") return never();
      const sandbox = find(id);
      const subscription = ++subscriptions;
      const first = sandbox.status === "creating" ? [] : rows(turnsOf(sandbox.agent), 60_000, scene === "long" ? OLDER : 0);
      if (sandbox.isWorking) stream(sandbox, subscription, first, onFrame);
      return { subscription, revision, rows: first, hasOlder: scene === "long", logEnd: 100, queue: queueOf(sandbox) };
    },
    transcriptAcknowledge: async () => null,
    transcriptClose: async (subscription) => (clearInterval(timers.get(subscription)), null),
    transcriptBefore: async (_, before) => olderRows(before),
    logRead: async () => ({ base64: btoa("\u001b[32m$ npm test -- retry\u001b[0m\nok 1 retries a GET\nok 2 retries a PUT\n\u001b[31mnot ok 8 honours Retry-After\u001b[0m\n\u001b]0;evil title\u0007{\"type\":\"result\"}\n"), next: 1e9, end: 1e9, isTruncated: true }),
    sandboxCheckpoints: async (id) => (scene === "loading" ? never() : work.checkpoints(find(id))),
    changes: async (id, from, to) => {
      if (scene === "loading") return never();
      if (scene === "error") throw failure("internal", "the vault could not be opened");
      return work.changes(find(id), from, to);
    },
    changesFile: async (id, _from, _to, path, _oldPath, isForced) => work.fileChange(find(id), path, isForced),
    changesPatch: async (id, from, to) => work.changes(find(id), from, to).files.map(({ path }) => `diff --git a/${path} b/${path}\n${work.fileChange(find(id), path, false).patch}`).join(""),
    checkpointOpen: async () => null,
    checkpointRestore: async () => null,
    delivery: async (id) => (scene === "loading" ? never() : { ...work.delivery(find(id)), ...delivered.get(id) }),
    deliveryDraft: async (id) => (scene === "loading" ? never() : work.draft(find(id))),
    sandboxDeliver: async (id, options) => {
      const steps = (at: number) => (["checkpoint", "commit", "push", "pull_request"] as const).map((kind, index) => ({ kind, status: index < at ? ("done" as const) : index === at ? ("running" as const) : ("pending" as const), detail: "", remedy: "", attempts: 1, at: Date.now() }));
      for (let at = 0; at <= 4; at++) {
        setTimeout(() => {
          delivered.set(id, { steps: steps(at), isRunning: at < 4, held: null, ...(at === 4 ? { pullRequest: work.opened(419), pushedBranch: "courier/retry-backoff", pushedCommit: "a07d3f8c21b94e50" } : {}) });
          change(id, at === 4 ? { pullRequest: work.opened(419, { reason: options.title ?? "" }) } : {});
        }, at * 900);
      }
      return null;
    },
    sandboxDelete: async (id) => (change(id, { isDeleted: true, deletedAt: Date.now() }), null),
    sandboxRestore: async (id) => (change(id, { isDeleted: false, deletedAt: null }), null),
    sandboxPurge: async (id) => {
      const gone = { ...find(id), isDeleted: true, revision: ++revision };
      sandboxes = sandboxes.filter((row) => row.id !== id);
      emit({ kind: "sandbox", revision, sandbox: gone });
      return null;
    },
    purgeFacts: async (id) => (scene === "loading" ? never() : work.purgeFacts(find(id))),
    trashList: async (project) => {
      if (scene === "loading") return never();
      if (scene === "error") throw failure("databaseBusy", "database is locked");
      return sandboxes.filter((row) => row.isDeleted && (project === null || row.project === project)).sort((one, other) => (other.deletedAt ?? 0) - (one.deletedAt ?? 0));
    },
    trashEmpty: async () => {
      const gone = sandboxes.filter((row) => row.isDeleted);
      for (const row of gone) await client.sandboxPurge(row.id);
      return gone.length;
    },
    machineList: async () => (scene === "loading" ? never() : scene === "empty" ? [] : [...machines]),
    machineDestroy: async (id) => ((machines = machines.filter((machine) => machine.id !== id)), null),
    sandboxUsed: async (id) => (sandboxes.find((row) => row.id === id)?.provider === "e2b" ? { cpus: 2, cpuPercent: 61, memoryUsed: 782_000_000, memoryTotal: 2_147_483_648, diskUsed: 3_900_000_000, diskTotal: 10_737_418_240 } : null),
    storage: async () => (scene === "loading" ? never() : work.storage(sandboxes)),
    storageClean: async (ids) => work.storage(sandboxes).entries.filter(({ sandbox }) => ids.includes(sandbox)).reduce((all, { workspaceBytes }) => all + workspaceBytes, 0),
    projectSettings: async () => (scene === "loading" ? never() : projectSettings),
    projectSettingsSet: async (_, to) => ((projectSettings = to), null),
    agentList: async () => data.agents(),
    credentialList: async () => credentials,
    credentialSet: async (kind, secret, sessionOnly) => {
      if (!sessionOnly) throw failure("noKeychain", "org.freedesktop.secrets does not answer");
      const kept = { ...(credentials.find((row) => row.kind === kind) ?? data.credentials()[0]), kind, isSet: true, lastFour: secret.slice(-4), isSessionOnly: true } as (typeof credentials)[number];
      credentials = credentials.map((row) => (row.kind === kind ? kept : row));
      return kept;
    },
    credentialRemove: async (kind) => {
      credentials = credentials.map((row) => (row.kind === kind ? { ...row, isSet: false, lastFour: null, isSessionOnly: false } : row));
      return null;
    },
    settingsGet: async () => settings,
    settingsSet: async (to) => {
      const url = Object.values(to.baseUrls).find((one) => one !== "" && !/^https:|^http:\/\/(127\.0\.0\.1|localhost)/.test(one));
      if (url !== undefined) throw failure("invalid", `${url}: a key would go over the network unencrypted; use https://`);
      if (Object.values(to.agents).some(({ extraArguments }) => extraArguments.includes("--resume"))) throw failure("invalid", "the extra arguments of Claude Code: --resume is set by CodeCourier itself; leave it out");
      settings = { ...to, baseUrls: Object.fromEntries(Object.entries(to.baseUrls).filter(([, one]) => one !== "")) };
      return null;
    },
    doctorRun: async () => data.doctor(),
    linkOpen: async () => null,
    folderChoose: async () => "/home/mara/code/orchard",
    appInfo: async () => ({ version: "0.1.0", dataDirectory: "/home/mara/.local/share/codecourier", platform: "Linux" }),
    onChanged: async (handler) => (listeners.add(handler), () => listeners.delete(handler)),
    onNavigate: async () => () => {},
  };
  return client;
}
