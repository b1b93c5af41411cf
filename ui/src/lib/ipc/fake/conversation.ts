/** Conversations as agents have them: every kind of row, and some that are hostile. */
import type { AgentKind, Item, Row } from "../bindings";

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

const RUST_PATCH = `--- a/crates/cart/src/lib.rs
+++ b/crates/cart/src/lib.rs
@@ -41,7 +41,3 @@
 pub fn total(cart: &Cart, at: Instant) -> Money {
-    let mut total = Money::ZERO;
-    for line in &cart.lines {
-        total += line.price * line.count - discount(line, at);
-    }
-    total
+    cart.lines.iter().map(|line| pricing::of(line, at)).sum()
 }
`;

/** Codex: whole messages, no streaming; a plan that is kept up; a lost connection it mends by itself. */
export function codexTurns(): Item[][] {
  return [
    [
      { kind: "message", text: "Which rules decide a price today, and where do they live?", messageId: "m1" },
      { kind: "thinking", text: "**Locating the pricing rules**\n\nSearch the cart crate for discounts, then see who calls them." },
      tool({ tool: "command", summary: "rg -n discount crates", input: "rg -n discount crates", exitCode: 0, durationMs: 90, result: "crates/cart/src/lib.rs:44:    total += line.price * line.count - discount(line, at);\ncrates/cart/src/rules.rs:12:pub fn discount(line: &Line, at: Instant) -> Money {" }),
      { kind: "text", text: "Three rules, all in `crates/cart/src/rules.rs`:\n\n1. **Volume:** from ten pieces, 5 %.\n2. **Season:** by date, from `seasons.toml`.\n3. **Staff:** by the account's role.\n\n`total()` is their only caller, so they can move without touching anything else." },
      { kind: "ended", error: null, exitCode: 0, durationMs: 31_000, usage: null },
    ],
    [
      { kind: "message", text: "Move them into a crate of their own and keep every total the same to the cent.", messageId: "m2" },
      { kind: "progress", entries: [{ text: "Pin today's totals with a test", state: "done" }, { text: "Move the rules to crates/pricing", state: "active" }, { text: "Call them from the cart", state: "pending" }] },
      tool({ tool: "write", summary: "crates/pricing/src/lib.rs", durationMs: 20, result: "" }),
      tool({ tool: "edit", summary: "crates/cart/src/lib.rs", durationMs: 30, diff: { path: "crates/cart/src/lib.rs", added: 1, removed: 5, patch: RUST_PATCH } }),
      tool({ tool: "command", summary: "cargo test -p pricing", input: "cargo test -p pricing", state: "failed", exitCode: 101, durationMs: 12_400, result: "running 9 tests\n\u001b[31mtest season_ends_at_midnight ... FAILED\u001b[0m\n\ntest result: FAILED. 8 passed; 1 failed" }),
      { kind: "notice", level: "warning", text: "The connection to the model was lost; the agent connects again, attempt 1 of 5.", retryAt: null },
      { kind: "text", text: "One test fails: a season ended at local midnight, and the moved code reads the date in UTC. I pass the shop's time zone along instead of reading it inside." },
      tool({ tool: "command", summary: "cargo test -p pricing", input: "cargo test -p pricing", state: "running", durationMs: null }),
    ],
  ];
}

const GO_PATCH = `--- a/src/import/reader.go
+++ b/src/import/reader.go
@@ -18,4 +18,7 @@
 func (r *Reader) Next() (Record, error) {
 	line, err := r.buf.ReadBytes('\\n')
-	if err != nil { return Record{}, err }
+	if errors.Is(err, io.EOF) && len(line) > 0 {
+		return Record{}, ErrTorn
+	}
+	if err != nil { return Record{}, err }
 	return parse(line)
`;

/** OpenCode: every step in order, and long silences while it tries again without a word. */
export function opencodeTurns(): Item[][] {
  return [
    [
      { kind: "message", text: "The importer accepts a file that was cut off in the middle of a line. It must not.", messageId: "m1" },
      ...["src/import/reader.go", "src/import/reader_test.go", "src/import/record.go"].map((summary) => tool({ tool: "read", summary, durationMs: 12, result: "package importer" })),
      tool({ tool: "search", summary: "io.EOF", durationMs: 40, result: "src/import/reader.go:20" }),
      { kind: "progress", entries: [{ text: "Reproduce with a torn file", state: "done" }, { text: "Refuse it in Next()", state: "done" }, { text: "Say which line was torn", state: "active" }] },
      { kind: "text", text: "`Next()` treats **any** end of file as the end of the records, also where the last line has no line break. I return `ErrTorn` there, so the caller can tell the two apart." },
      tool({ tool: "edit", summary: "src/import/reader.go", durationMs: 18, diff: { path: "src/import/reader.go", added: 4, removed: 1, patch: GO_PATCH } }),
      tool({ tool: "command", summary: "go test ./src/import/...", input: "go test ./src/import/...", exitCode: 0, durationMs: 2_900, result: "ok  \texample.org/harbor/src/import\t0.412s" }),
      tool({ tool: "other", name: "lsp_diagnostics", summary: "", input: '{"path":"src/import/reader.go"}', durationMs: 210, result: "[]" }),
      { kind: "text", text: "It passes. Next I give the error the number of the torn line." },
      tool({ tool: "edit", summary: "src/import/reader.go", state: "running", durationMs: null }),
    ],
  ];
}

/** Pi: streams, and ends with code 0 even where the model refused; here a limit whose end is known. */
export function piTurns(): Item[][] {
  return [
    [
      { kind: "message", text: "Replace the date picker by the browser's own, and keep the form's values as they are.", messageId: "m1" },
      { kind: "thinking", text: "The values are ISO dates already, which is what the browser's own field speaks." },
      tool({ tool: "command", summary: "grep -rn DatePicker src", input: "grep -rn DatePicker src", exitCode: 0, durationMs: 35, result: "src/forms/Booking.tsx:9\nsrc/forms/Invoice.tsx:14" }),
      tool({ tool: "read", summary: "src/forms/Booking.tsx", durationMs: 8, result: "export function Booking() {}" }),
      tool({ tool: "edit", summary: "src/forms/Booking.tsx", durationMs: 14, diff: { path: "src/forms/Booking.tsx", added: 4, removed: 1, patch: PATCH.replaceAll("src/http/send.ts", "src/forms/Booking.tsx") } }),
      { kind: "text", text: "Both forms send `YYYY-MM-DD`, so the values stay. `Booking` is done; `Invoice` needs a minimum date, which the browser's field takes as `min`." },
      { kind: "ended", error: null, exitCode: 0, durationMs: 64_000, usage: null },
    ],
    [
      { kind: "message", text: "Go on with the invoice.", messageId: "m2" },
      tool({ tool: "read", summary: "src/forms/Invoice.tsx", durationMs: 9, result: "export function Invoice() {}" }),
      { kind: "notice", level: "info", text: "The conversation was shortened to fit the model.", retryAt: null },
      { kind: "error", error: "rate_limited", message: "429 rate_limit_error: this request would exceed your account's limit of tokens per day", retryAt: Date.now() + 48 * 60_000 },
      { kind: "ended", error: "rate_limited", exitCode: 0, durationMs: 7_000, usage: null },
    ],
  ];
}

export const turnsOf = (agent: AgentKind): Item[][] => ({ claude: claudeTurns, codex: codexTurns, opencode: opencodeTurns, pi: piTurns, shell: shellTurns })[agent]();

/** What an agent that does not stream goes on to print, a row at a time. */
export const STEPS: Item[] = [
  { kind: "text", text: "All nine pass. Now the cart calls the new crate, and the old module goes." },
  tool({ tool: "edit", summary: "crates/cart/Cargo.toml", durationMs: 11, diff: { path: "crates/cart/Cargo.toml", added: 1, removed: 0, patch: "--- a/crates/cart/Cargo.toml\n+++ b/crates/cart/Cargo.toml\n@@ -7,1 +7,2 @@\n [dependencies]\n+pricing = { path = \"../pricing\" }\n" } }),
  tool({ tool: "command", summary: "cargo test --workspace", input: "cargo test --workspace", exitCode: 0, durationMs: 21_300, result: "test result: ok. 64 passed; 0 failed" }),
];

/** What the agent goes on to say in the sandbox that works. */
export const STREAM = " moves nothing.\n\nThat leaves three things to do:\n\n1. Parse the date with `Temporal.Instant.from`, which refuses what is not a date.\n2. Fall back to the doubled delay when the header is nonsense.\n3. Add the case to `retry.test.ts`, with the clock held still.\n\nI begin with the test, because it fails for the right reason already: the delay is `NaN`, and `setTimeout(NaN)` fires at once. ";
