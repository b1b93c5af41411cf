/** Conversations as agents have them: every kind of row, and some that are hostile. */
import type { Item, Row } from "../bindings";

type Tool = Extract<Item, { kind: "tool" }>;

export function tool(change: Partial<Tool> & Pick<Tool, "tool" | "summary">): Tool {
  return { kind: "tool", callId: "c", name: change.tool, input: change.summary, state: "done", result: null, exitCode: null, durationMs: 100, diff: null, ...change };
}

/** Rows of turns, a second apart, the last one `ago` milliseconds old. */
export function rows(turns: Item[][], ago: number, before = 0): Row[] {
  const total = turns.reduce((sum, items) => sum + items.length, 0);
  let at = before;
  const last = before + total;
  return turns.flatMap((items, index) => items.map((item) => ({ at: ++at, turn: before + index + 1, time: Date.now() - ago - (last - at) * 1_000, item })));
}

/** A page of a long conversation, with rows of every height. */
export function olderRows(before: number): Row[] {
  const from = Math.max(1, before - 200);
  return Array.from({ length: before - from }, (_, index): Row => {
    const at = from + index;
    const item: Item = at % 3 === 0 ? tool({ tool: "command", summary: `step ${at}` }) : { kind: "text", text: `Row ${at}. `.repeat(1 + ((at * 7) % 60)) };
    return { at, turn: Math.ceil(at / 20), time: Date.now() - (100_100 - at) * 1_000, item };
  });
}

const PATCH = `--- a/src/http/send.ts
+++ b/src/http/send.ts
@@ -21,3 +21,6 @@
 async function attempt(req: Request, n: number) {
-  return fetch(req);
+  const res = await fetch(req.clone());
+  if (!mayRetry(req, res, n)) return res;
+  await sleep(delay(res, n));
+  return attempt(req, n + 1);
 }
`;

export function claudeTurns(): Item[][] {
  return [
    [
      { kind: "message", text: "Where do all HTTP calls go through? I want retries in one place.", messageId: "m1" },
      { kind: "thinking", text: "The person wants a single place. Let me look for fetch( in src/ and see who calls it directly." },
      tool({ tool: "search", summary: "fetch\\(", result: "src/http/send.ts:22\nsrc/http/send.ts:31", durationMs: 210 }),
      { kind: "text", text: "Everything goes through `send()` in `src/http/send.ts`. Two other callers exist only in tests.\n\n| Caller | Retries today |\n|---|---|\n| `send()` | none |\n| `upload()` | by hand, twice |\n\nSee [the fetch standard](https://fetch.spec.whatwg.org/#fetch-method) and ![a picture](https://example.org/track.png)." },
      { kind: "progress", entries: [{ text: "Find every caller of fetch", state: "done" }, { text: "Retry in send()", state: "active" }, { text: "Test with a fake clock", state: "pending" }] },
      { kind: "ended", error: null, exitCode: null, durationMs: 48_000, usage: null },
    ],
    [
      { kind: "message", text: "Good. Write the rule down first, with an example.", messageId: "m2" },
      { kind: "text", text: "## The rule\n\n1. GET, PUT and DELETE retry.\n2. POST only with an `Idempotency-Key`.\n\n```ts\nexport function mayRetry(req: Request, res: Response, n: number) {\n  return n < 5 && (res.status === 429 || res.status === 503) && isIdempotent(req);\n}\n```\n\n> Never retry what may have happened twice.\n\n<script>alert(1)</script> and ~~nothing~~ else." },
      tool({ tool: "web", summary: "https://www.rfc-editor.org/rfc/rfc9110#field.retry-after", state: "failed", result: "The sandbox may not reach www.rfc-editor.org.", durationMs: 30 }),
      { kind: "unknown", raw: '{"type":"system","subtype":"status","status":"compacting","uuid":"0f2a"}' },
      { kind: "error", error: "overloaded", message: "529 overloaded_error: the model is overloaded", retryAt: null },
      { kind: "ended", error: "overloaded", exitCode: null, durationMs: 252_000, usage: null },
    ],
    [
      { kind: "message", text: "Make the client retry on 429 and 503, but never a POST without an Idempotency-Key. Respect Retry-After.", messageId: "m3" },
      { kind: "text", text: "Every call goes through `send()`, so one place is enough. The rule I follow:\n\n- **Which requests:** GET, PUT, DELETE, and POST with a key.\n- **How long:** `Retry-After`, else 200 ms doubled, at most five times." },
      ...["send.ts", "retry.ts", "delay.ts", "clock.ts", "headers.ts", "client.ts"].map((name) => tool({ tool: "read", summary: `src/http/${name}`, durationMs: 66, result: `// ${name}\nexport {};` })),
      tool({ tool: "edit", summary: "src/http/send.ts", diff: { path: "src/http/send.ts", added: 4, removed: 1, patch: PATCH } }),
      tool({ tool: "command", summary: "npm test -- retry", input: "npm test -- retry", state: "failed", exitCode: 1, durationMs: 4_200, result: `${Array.from({ length: 30 }, (_, i) => `ok ${i + 1} retries attempt ${i + 1}`).join("\n")}\n\u001b[31mnot ok 31 honours Retry-After given as a date\u001b[0m\n\u001b[1m31 tests, 30 passed, 1 failed\u001b[0m` }),
      { kind: "notice", level: "warning", text: "The model was overloaded; the agent tried again after 8 s.", retryAt: null },
      tool({ tool: "command", summary: "npm test -- --watch", state: "running", durationMs: null }),
      { kind: "text", text: "The failing case is `Retry-After` as an HTTP date: `Number()` makes it NaN. I parse both forms and measure the date against the response's own `Date` header, so that a wrong clock here" },
    ],
  ];
}

export function shellTurns(): Item[][] {
  return [
    [
      { kind: "message", text: "cargo test --workspace 2>&1 | tail -5", messageId: "m1" },
      { kind: "output", text: "\u001b[1m\u001b[32m   Compiling\u001b[0m harbor v0.4.0\n\u001b[1m\u001b[32m    Finished\u001b[0m test profile in 38.20s\n\u001b[33mwarning\u001b[0m: unused variable `clock`\n日本語の出力 ✓ and a ‮reversed‬ word\n", isStderr: false },
      { kind: "output", text: "error: could not open /etc/shadow: Permission denied\n", isStderr: true },
      { kind: "ended", error: null, exitCode: 101, durationMs: 38_200, usage: null },
    ],
    [{ kind: "message", text: "seq 100000", messageId: "m2" }],
  ];
}

/** What the agent goes on to say in the sandbox that works. */
export const STREAM = " moves nothing.\n\nThat leaves three things to do:\n\n1. Parse the date with `Temporal.Instant.from`, which refuses what is not a date.\n2. Fall back to the doubled delay when the header is nonsense.\n3. Add the case to `retry.test.ts`, with the clock held still.\n\nI begin with the test, because it fails for the right reason already: the delay is `NaN`, and `setTimeout(NaN)` fires at once. ";
