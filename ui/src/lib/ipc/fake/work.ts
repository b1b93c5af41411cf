/** What the fake sandboxes made: checkpoints, changes of every kind, and deliveries in every state. */
import type { ChangedFile, Changes, Checkpoint, Delivery, FileChange, ProjectSettings, PullRequest, PullRequestDraft, PurgeFacts, Sandbox, Step, StepKind, StepStatus, Storage } from "../bindings";

const MINUTE = 60_000;
const KB = 1024;
const MB = 1024 * KB;

const file = (path: string, added: number, removed: number, change: Partial<ChangedFile> = {}): ChangedFile => ({
  path, oldPath: null, kind: "modified", added, removed, isBinary: false, sizeBefore: 4 * KB, sizeAfter: 4 * KB, isLfs: false, isSubmodule: false, ...change,
});

const FETCH_BEFORE = `import { setTimeout as sleep } from "node:timers/promises";
import nodeFetch from "node-fetch";

// Node 18 has a fetch that leaks sockets on abort.
const major = Number(process.versions.node.split(".")[0]);
export const fetch = major < 20
  ? (nodeFetch as unknown as typeof globalThis.fetch)
  : globalThis.fetch;

export interface Options {
  agent?: import("node:http").Agent;
  signal?: AbortSignal;
}
${Array.from({ length: 31 }, (_, index) => (index % 8 === 0 ? "" : `  // The delay doubles with each attempt; step ${index} of the table below.`)).join("\n")}
export async function get(url: URL, options: Options = {}) {
  const timer = new AbortController();
  const handle = setTimeout(() => timer.abort(), 10_000);
  return fetch(url, { ...options, signal: timer.signal });
}
`;
const FETCH_AFTER = FETCH_BEFORE
  .replace(/import nodeFetch[^\n]*\n/, 'import type { Dispatcher } from "undici";\n')
  .replace(/\/\/ Node 18[\s\S]*?globalThis\.fetch;\n/, "export const fetch = globalThis.fetch;\n")
  .replace('agent?: import("node:http").Agent;', "dispatcher?: Dispatcher;")
  .replace(/ {2}const timer[\s\S]*?timer\.signal \}\);/, "  const signal = AbortSignal.any(\n    [options.signal, AbortSignal.timeout(10_000)].filter(given),\n  );\n  return fetch(url, { ...options, signal });");
const FETCH_PATCH = `@@ -1,13 +1,9 @@
 import { setTimeout as sleep } from "node:timers/promises";
-import nodeFetch from "node-fetch";
+import type { Dispatcher } from "undici";
 
-// Node 18 has a fetch that leaks sockets on abort.
-const major = Number(process.versions.node.split(".")[0]);
-export const fetch = major < 20
-  ? (nodeFetch as unknown as typeof globalThis.fetch)
-  : globalThis.fetch;
+export const fetch = globalThis.fetch;
 
 export interface Options {
-  agent?: import("node:http").Agent;
+  dispatcher?: Dispatcher;
   signal?: AbortSignal;
 }
@@ -45,5 +41,6 @@ export interface Options {
 export async function get(url: URL, options: Options = {}) {
-  const timer = new AbortController();
-  const handle = setTimeout(() => timer.abort(), 10_000);
-  return fetch(url, { ...options, signal: timer.signal });
+  const signal = AbortSignal.any(
+    [options.signal, AbortSignal.timeout(10_000)].filter(given),
+  );
+  return fetch(url, { ...options, signal });
 }
`;
const TEST_PATCH = `@@ -18,6 +18,7 @@ describe("get")
 test("aborts after ten seconds", async (t) => {
-  if (major < 20) return t.skip();
+  t.mock.timers.enable({ apis: ["setTimeout"] });
   const server = await slowServer(t);
   const request = get(server.url);
-  await assert.rejects(request, { name: "AbortError" });
+  t.mock.timers.tick(10_000);
+  await assert.rejects(request, { name: "TimeoutError" });
 });
`;

const FILES: ChangedFile[] = [
  file(".github/workflows/release.yml", 4, 6),
  file("assets/harbor.png", 0, 0, { isBinary: true, sizeBefore: 41 * KB, sizeAfter: 28 * KB }),
  file("assets/tour.mp4", 1, 1, { isLfs: true, sizeBefore: 18 * MB, sizeAfter: 21 * MB }),
  file("docker/Dockerfile", 6, 9),
  file("package-lock.json", 9_204, 11_870, { sizeBefore: 1_200 * KB, sizeAfter: 1_040 * KB }),
  file("package.json", 2, 4),
  file("README.md", 2, 1),
  file("scripts/release.mjs", 3, 12, { kind: "mode" }),
  file("src/http/fetch.test.ts", 5, 3),
  file("src/http/fetch.ts", 7, 9),
  file("src/http/retry/backoff.ts", 38, 0, { kind: "added", sizeBefore: 0 }),
  file("src/http/transport.ts", 2, 2, { kind: "renamed", oldPath: "src/http/client/nodeFetchTransport.ts" }),
  file("src/legacy/sockets.ts", 0, 61, { kind: "deleted", sizeAfter: 0 }),
  file("src/legacy/\u202egnp.exe", 1, 0, { kind: "added", sizeBefore: 0 }),
  file("third_party/undici", 1, 1, { isSubmodule: true }),
  file("übersetzungen/Datenschutzgrundverordnungsprüfungsergebnisse-der-vergangenen-vierundzwanzig-Monate.properties", 3, 3),
];
const many = (): ChangedFile[] =>
  Array.from({ length: 2_000 }, (_, index) => file(`packages/${["api", "core", "web", "worker"][index % 4] ?? ""}/src/${String.fromCharCode(97 + (index % 23))}${index % 7}/module${index}.ts`, 1 + (index % 9), index % 5));

const NOTHING: Changes = { files: [], more: 0, added: 0, removed: 0 };
const sum = (files: ChangedFile[], more = 0): Changes => ({ files, more, added: files.reduce((all, { added }) => all + added, 0), removed: files.reduce((all, { removed }) => all + removed, 0) });

const hasNoWork = (of: Sandbox) => of.status === "creating" || of.id === "s4" || of.id === "s13" || of.status === "error";

export function checkpoints(of: Sandbox): Checkpoint[] {
  if (of.status === "creating") return [];
  const turns = of.id === "s3" ? 11 : 4;
  const made = Array.from({ length: turns }, (_, index): Checkpoint => ({
    id: `${of.id}-c${index + 1}`, name: `turn ${index + 1}`, turn: index + 1, commit: `${index + 1}a07d3f8c21b94e50`, at: of.createdAt + (index + 1) * 3 * MINUTE, filesChanged: index === 2 ? 0 : 3 + index, lfs: [],
    skipped: index < turns - 1 || hasNoWork(of) ? [] : [{ path: "data/dump.sql", why: "larger than 100 MB (214 MB)" }, { path: "run/control.sock", why: "a socket" }],
  }));
  if (of.endedAt !== null) made.push({ id: `${of.id}-end`, name: "before the end", turn: null, commit: "9fa07d3f8c21b94e", at: of.endedAt, filesChanged: 1, skipped: [], lfs: [] });
  return made;
}

export function changes(of: Sandbox, from: string | null, to: string | null): Changes {
  if (hasNoWork(of)) return NOTHING;
  if (of.id === "s3") return sum(many(), 340);
  const turn = Number(/-c(\d+)$/.exec(to ?? "")?.[1] ?? 0);
  if (turn === 3 && from !== null) return NOTHING;
  if (from === null && to === null) return sum(FILES);
  return sum(FILES.filter((_, index) => index % 4 === turn % 4));
}

export function fileChange(of: Sandbox, path: string, isForced: boolean): FileChange {
  const about: FileChange = { path, patch: "", before: null, after: null, note: null, isHuge: false };
  const known = changes(of, null, null).files.find((one) => one.path === path);
  if (path === "src/http/fetch.ts") return { ...about, patch: FETCH_PATCH, before: FETCH_BEFORE, after: FETCH_AFTER };
  if (path === "src/http/fetch.test.ts") return { ...about, patch: TEST_PATCH };
  if (path === "package-lock.json" && !isForced) return { ...about, note: "21,074 lines changed.", isHuge: true };
  if (known?.isBinary) return { ...about, note: "A binary file." };
  if (known?.isLfs) return { ...about, patch: "@@ -1,3 +1,3 @@\n version https://git-lfs.github.com/spec/v1\n-oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n-size 18874368\n+oid sha256:98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4\n+size 22020096\n" };
  if (known?.isSubmodule) return { ...about, patch: "@@ -1 +1 @@\n-Subproject commit 4be19c2f0d6e1f7a0b1c2d3e4f5a6b7c8d9e0f1a\n+Subproject commit a07d3f8c21b94e507c6d5e4f3a2b1c0d9e8f7a6b\n" };
  if (path.includes("\u202e")) return { ...about, patch: "@@ -0,0 +1 @@\n+const isAdmin = false; /*\u202e } \u2066if (isAdmin)\u2069 \u2066 begin admins only */ <img src=x onerror=alert(1)>\n" };
  const added = known?.added ?? 1;
  const removed = known?.removed ?? 0;
  if (isForced) return { ...about, note: "Only the first 4,000 lines are shown.", patch: `@@ -1,2000 +1,2000 @@\n${Array.from({ length: 2_000 }, (_, index) => `-    "node_modules/package-${index}": { "version": "18.${index}.0" },\n+    "node_modules/package-${index}": { "version": "20.${index}.1" },`).join("\n")}\n` };
  const lines = [" import { given } from \"../given.js\";", " ", ...Array.from({ length: Math.min(removed, 60) }, (_, index) => `-export const before${index} = legacy("${path.split("/").at(-1)}", ${index});`), ...Array.from({ length: Math.min(added, 60) }, (_, index) => `+export const after${index} = given(${index});`), " ", " export default {};"];
  if (known?.kind === "added") return { ...about, patch: `@@ -0,0 +1,${added} @@\n${Array.from({ length: added }, (_, index) => `+${["export function delay(attempt: number): number {", "  return Math.min(30_000, 200 * 2 ** attempt);", "}", ""][index % 4] ?? ""}`).join("\n")}\n` };
  if (known?.kind === "deleted") return { ...about, patch: `@@ -1,${removed} +0,0 @@\n${Array.from({ length: removed }, (_, index) => `-socket.on("event${index}", () => socket.destroy());`).join("\n")}\n` };
  return { ...about, patch: `@@ -12,${removed + 4} +12,${added + 4} @@\n${lines.join("\n")}\n` };
}

const KINDS: StepKind[] = ["stop_agent", "checkpoint", "commit", "push", "pull_request", "destroy"];
const DONE: Record<StepKind, string> = { stop_agent: "The agent has ended.", checkpoint: "16 files, 38 MB.", commit: "1 commit with 16 files.", push: "courier/retry-backoff to github.com/acme/harbor-api.", pull_request: "#412 is open.", destroy: "The sandbox is no more." };

/** The steps up to one that is not done, and that one as it is said. */
function steps(kinds: StepKind[], at: StepKind | null, status: StepStatus = "done", detail = "", remedy = "", attempts = 1): Step[] {
  const until = at === null ? kinds.length : kinds.indexOf(at);
  return kinds.map((kind, index): Step => {
    const own: StepStatus = index < until ? "done" : index === until ? status : "pending";
    return { kind, status: own, detail: index < until ? DONE[kind] : index === until ? detail : "", remedy: index === until ? remedy : "", attempts: own === "pending" ? 0 : index === until ? attempts : 1, at: own === "pending" ? 0 : Date.now() - (until - index) * 2_000 - 4_000 };
  });
}

export const opened = (number: number, change: Partial<PullRequest> = {}): PullRequest => ({ status: "created", url: `https://github.com/acme/harbor-api/pull/${number}`, number, reason: "", isClosed: false, ...change });

export function delivery(of: Sandbox): Delivery {
  const about: Delivery = { steps: [], branch: "courier/retry-backoff", pushedBranch: null, pushedCommit: null, pullRequest: of.pullRequest, isRunning: false, held: null, target: "github.com/acme/harbor-api", compareUrl: "https://github.com/acme/harbor-api/compare/main...courier/retry-backoff" };
  const pushed = { pushedBranch: "courier/retry-backoff", pushedCommit: "a07d3f8c21b94e50" };
  const without = KINDS.filter((kind) => kind !== "stop_agent" && kind !== "destroy");
  if (of.id === "s5" && of.activity === "stopping") return { ...about, isRunning: true, steps: steps(KINDS, "push", "running", "62 %, 1.2 MB a second") };
  if (of.id === "s6") return { ...about, steps: steps(without, "push", "failed", "The remote refused the branch: the token may not change workflows.", "Give the token the scope “workflow” in Settings, then try again.", 2) };
  if (of.id === "s7") return { ...about, held: { workflows: [".github/workflows/release.yml", ".github/workflows/nightly.yml"], lfs: ["assets/tour.mp4"] }, steps: steps(without, "push", "held", "It changes what runs with the repository's secrets.", "Look at the changes, then push all the same.") };
  if (of.id === "s10") return { ...about, steps: [...steps(KINDS.slice(0, 5), "push", "failed", "github.com did not answer.", "Nothing is lost: the work is in the vault. Try again when the network is back.", 4), { kind: "destroy", status: "done", detail: DONE.destroy, remedy: "", attempts: 1, at: Date.now() - 5 * 60 * MINUTE }] };
  if (of.id === "s13") return { ...about, steps: KINDS.map((kind): Step => ({ kind, status: ["push", "pull_request", "commit"].includes(kind) ? "skipped" : "done", detail: ["push", "pull_request", "commit"].includes(kind) ? "Nothing changed." : DONE[kind], remedy: "", attempts: 1, at: Date.now() })) };
  if (of.pullRequest !== null && of.endedAt !== null) return { ...about, ...pushed, steps: steps(KINDS, null) };
  if (of.pullRequest !== null) return { ...about, ...pushed, steps: steps(without, null) };
  return about;
}

export function draft(of: Sandbox): PullRequestDraft {
  return {
    title: of.title, base: "main", branch: "courier/retry-backoff", isDraft: false, skip: of.id === "s14" ? "The project has no remote; the branch is brought into your own repository." : null,
    body: `## What was asked\n\nMake the client retry on 429 and 503, but never a POST without an Idempotency-Key. Respect Retry-After.\n\n## What was done\n\n- Every call goes through \`send()\`, which retries GET, PUT, DELETE and POST with a key.\n- \`Retry-After\` is read as seconds and as a date.\n\n## How it was checked\n\n\`npm test -- retry\`: 8 passed.\n\nMade by Claude Code in CodeCourier, 3 turns, 13 min, $0.41.\n`,
  };
}

export function purgeFacts(of: Sandbox): PurgeFacts {
  const isSafe = of.pullRequest !== null;
  return {
    title: of.title, uncommittedFiles: isSafe ? 0 : 3, unpushedCommits: isSafe ? 0 : 1, hasStash: !isSafe, skipped: isSafe ? [] : [{ path: "data/dump.sql", why: "larger than 100 MB (214 MB)" }], bytes: isSafe ? 84 * MB : 412 * MB, isLive: false,
    path: "~/.local/share/codecourier/sandboxes/0192f1c4", pullRequest: of.pullRequest,
    kept: isSafe ? ["The branch courier/webhook-retries on github.com/acme/harbor-api.", "Pull request #412.", "What it cost, for the project's sums."] : ["What it cost, for the project's sums."],
    lost: ["The conversation and the raw log.", "Its workspace and its checkpoints."],
  };
}

export function storage(sandboxes: Sandbox[]): Storage {
  const entries = sandboxes.filter(({ status }) => status !== "creating").map((one, index) => {
    const workspaceBytes = [48, 412, 96, 31, 220, 8][index % 6] ?? 1;
    const isSafe = one.endedAt !== null && one.id !== "s10" && one.id !== "s11" && one.status === "killed";
    const reason = one.endedAt === null ? "It still runs." : one.id === "s10" ? "Its branch was not pushed yet." : isSafe ? "Ended, and everything of it is pushed." : "Files in its workspace are in no checkpoint.";
    return { sandbox: one.id, title: one.title, project: one.project, status: one.status, bytes: (workspaceBytes + 6) * MB, workspaceBytes: workspaceBytes * MB, logBytes: 6 * MB, isSafe, reason, endedAt: one.endedAt, isDeleted: one.isDeleted };
  });
  return { total: entries.reduce((all, { bytes }) => all + bytes, 0) + 640 * MB, mirrors: 612 * MB, database: 28 * MB, entries };
}

export const projectSettings = (): ProjectSettings => ({ deliver: "on_end", isReviewedFirst: false, isDraft: false, commitAuthor: "Mara Lindqvist", commitEmail: "mara@example.org", commitMessage: "{title}\n\nMade in the sandbox {sandbox}." });
