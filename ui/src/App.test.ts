import { fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { describe, expect, it, vi } from "vitest";
import App from "./App.svelte";
import type { Client } from "./lib/ipc/client";
import { piTurns, rows } from "./lib/ipc/fake/conversation";
import { createFake, failure } from "./lib/ipc/fake/fake";
import { Courier } from "./lib/state/courier.svelte";

async function open(scene: string, change: Partial<Client> = {}) {
  delete document.documentElement.dataset.ready;
  const client = { ...createFake(new URLSearchParams({ scene })), ...change };
  render(App, { courier: new Courier(client) });
  await waitFor(() => expect(document.documentElement.dataset.ready).toBe("true"));
  return client;
}

async function openSandbox(id: string) {
  const row = await waitFor(() => {
    const found = screen.getAllByTestId("sandbox-row").find((one) => one.dataset.id === id);
    if (found === undefined) throw new Error(`${id} is not drawn`);
    return found;
  });
  await fireEvent.click(row);
  return (await screen.findByTestId("composer-input")) as HTMLTextAreaElement;
}

const enter = (node: HTMLElement, part: object = {}) => fireEvent.keyDown(node, { key: "Enter", ...part });

describe("the window", () => {
  it("offers the sample project on the first start and goes there", async () => {
    await open("first");
    await fireEvent.click(await screen.findByTestId("sample-project"));
    expect((await screen.findByTestId("project-row")).textContent).toContain("sample-notes");
    expect(screen.queryByTestId("first-start")).toBeNull();
  });

  it("sends with Enter and clears the draft only once the engine has taken it", async () => {
    let answer: () => void = () => {};
    const sandboxSend = vi.fn(() => new Promise<never>((resolve) => (answer = () => resolve(undefined as never))));
    await open("full", { sandboxSend });
    const input = await openSandbox("s4");
    await fireEvent.input(input, { target: { value: "go on" } });
    await enter(input);
    expect(sandboxSend).toHaveBeenCalledWith("s4", "go on", "queue");
    expect(input.value).toBe("go on");
    answer();
    await waitFor(() => expect(input.value).toBe(""));
  });

  it("keeps the draft when sending fails, and names cause and remedy", async () => {
    await open("full", { sandboxSend: () => Promise.reject(failure("databaseBusy", "database is locked")) });
    const input = await openSandbox("s2");
    await fireEvent.input(input, { target: { value: "precious" } });
    await enter(input, { ctrlKey: true });
    const banner = await screen.findByText("The database is busy.");
    expect(banner.closest("[data-testid=error-banner]")?.textContent).toContain("try again in a moment");
    expect(input.value).toBe("precious");
  });

  it("keeps a draft of its own for each sandbox", async () => {
    await open("full");
    await fireEvent.input(await openSandbox("s4"), { target: { value: "for four" } });
    expect((await openSandbox("s2")).value).toBe("");
    expect((await openSandbox("s4")).value).toBe("for four");
  });

  it("shows the status beside the work in hand, and offers the second stop", async () => {
    const sandboxStop = vi.fn(async () => null);
    await open("full", { sandboxStop });
    await openSandbox("s5");
    const badge = await screen.findByTestId("status-badge");
    expect([badge.dataset.status, badge.dataset.activity]).toEqual(["running", "stopping"]);
    const stop = screen.getByTestId("stop");
    expect(stop.textContent).toContain("End now");
    await fireEvent.click(stop);
    expect(sandboxStop).toHaveBeenCalledWith("s5");
  });

  it("offers to keep a key for the session where there is no keychain, and never shows it again", async () => {
    const client = await open("full");
    const credentialSet = vi.spyOn(client, "credentialSet");
    await fireEvent.click(screen.getByTestId("nav-settings"));
    await fireEvent.input(await screen.findByTestId("key-input-claude_oauth_token"), { target: { value: "sk-secret-9zZ1" } });
    await fireEvent.click(screen.getByTestId("key-save-claude_oauth_token"));
    await fireEvent.click(within(await screen.findByTestId("error-banner")).getByTestId("error-action"));
    expect((await screen.findByTestId("key-last-four-claude_oauth_token")).textContent).toBe("…9zZ1");
    expect(credentialSet.mock.calls.map(([, , isSessionOnly]) => isSessionOnly)).toEqual([false, true]);
    expect(document.body.innerHTML).not.toContain("sk-secret");
  });

  it("says what failed when the list cannot be read, and tries again", async () => {
    let isBroken = true;
    const whole = createFake(new URLSearchParams());
    await open("full", { sandboxList: (query) => (isBroken ? Promise.reject(failure("databaseBusy", "locked")) : whole.sandboxList(query)) });
    await screen.findByText("The database is busy.");
    isBroken = false;
    await fireEvent.click(screen.getByTestId("error-action"));
    expect((await screen.findAllByTestId("sandbox-row")).length).toBeGreaterThan(0);
  });

  it("saves what an agent is started with, split as a shell would, and shows a refusal as it was said", async () => {
    const client = await open("full");
    const settingsSet = vi.spyOn(client, "settingsSet");
    await fireEvent.click(screen.getByTestId("nav-settings"));
    expect((await screen.findByTestId("agent-row-codex")).textContent).toContain("not installed");
    expect(screen.queryByTestId("agent-path-claude")).toBeNull();
    await fireEvent.click(screen.getByTestId("agent-row-claude"));
    const words = screen.getByTestId<HTMLInputElement>("agent-arguments-claude");
    expect(words.value).toBe("--add-dir '/home/mara/shared notes'");
    await fireEvent.input(words, { target: { value: "--say 'two" } });
    expect(screen.getByTestId("agent-save-claude").getAttribute("aria-disabled")).toBe("true");
    await fireEvent.input(words, { target: { value: "--resume x" } });
    await fireEvent.click(screen.getByTestId("agent-save-claude"));
    expect((await screen.findByTestId("agent-error-claude")).textContent).toContain("--resume is set by CodeCourier itself");
    await fireEvent.input(words, { target: { value: '--add-dir "/x y"' } });
    await fireEvent.change(screen.getByTestId("agent-effort-claude"), { target: { value: "low" } });
    await fireEvent.click(screen.getByTestId("agent-save-claude"));
    await waitFor(() => expect(screen.queryByTestId("agent-error-claude")).toBeNull());
    expect(settingsSet.mock.lastCall?.[0].agents).toEqual({ claude: { path: null, effort: "low", extraArguments: ["--add-dir", "/x y"] } });
  });

  it("keeps an address for each key, and takes one back when it is emptied", async () => {
    const client = await open("full");
    await fireEvent.click(screen.getByTestId("nav-settings"));
    const own = await screen.findByTestId<HTMLInputElement>("base-url-compatible_key");
    expect(own.value).toBe("http://127.0.0.1:11434/v1");
    await fireEvent.input(screen.getByTestId("base-url-openai_key"), { target: { value: "https://models.example.org/v1" } });
    await fireEvent.click(screen.getByTestId("base-url-openai_key-save"));
    await fireEvent.input(own, { target: { value: " " } });
    await waitFor(() => expect(screen.getByTestId("base-url-openai_key-save").getAttribute("aria-disabled")).toBe("true"));
    await fireEvent.click(screen.getByTestId("base-url-compatible_key-save"));
    await waitFor(async () => expect((await client.settingsGet()).baseUrls).toEqual({ openai_key: "https://models.example.org/v1" }));
  });

  it("shows an agent that is not installed, says what to do, and does not start it", async () => {
    const client = await open("full");
    const sandboxCreate = vi.spyOn(client, "sandboxCreate");
    await fireEvent.click(screen.getByTestId("new-sandbox"));
    const prompt = await screen.findByTestId("prompt-input");
    await fireEvent.input(prompt, { target: { value: "Stream the export" } });
    await fireEvent.click(await screen.findByTestId("agent-codex"));
    expect((await screen.findByTestId("agent-problem")).textContent).toContain("npm install");
    expect(screen.getByTestId("start-sandbox").getAttribute("aria-disabled")).toBe("true");
    await enter(prompt, { ctrlKey: true });
    expect(sandboxCreate).not.toHaveBeenCalled();
  });

  it("claims to know who pays only where it does", async () => {
    await open("full");
    await fireEvent.click(screen.getByTestId("new-sandbox"));
    const billed = await screen.findByTestId("billed-to");
    await waitFor(() => expect(billed.textContent).toContain("Anthropic key"));
    await fireEvent.click(await screen.findByTestId("agent-opencode"));
    expect(billed.textContent).toContain("Anthropic key");
    await fireEvent.change(screen.getByTestId("model-select"), { target: { value: "openai/gpt-5.2" } });
    expect(billed.textContent).not.toContain("Anthropic");
  });

  it("says for how long a turn was quiet, beside Interrupt and Stop", async () => {
    const client = await open("agents");
    const [sandboxInterrupt, sandboxStop] = [vi.spyOn(client, "sandboxInterrupt"), vi.spyOn(client, "sandboxStop")];
    await openSandbox("s19");
    const quiet = await screen.findByTestId("quiet");
    expect(quiet.textContent).toContain("No output for 7 minutes.");
    expect(screen.queryByTestId("interrupt")).toBeNull();
    expect(screen.getByTestId("quiet-stop").textContent).toBe("Stop");
    await fireEvent.click(screen.getByTestId("quiet-interrupt"));
    await waitFor(() => expect(screen.queryByTestId("quiet")).toBeNull());
    expect([sandboxInterrupt.mock.calls, sandboxStop.mock.calls]).toEqual([[["s19"]], []]);
  });

  it("goes on once a limit has ended where a person wants it, until they take that back", async () => {
    // A short conversation: without a height, only its first rows are drawn.
    const last = rows([piTurns().flat().filter(({ kind }) => kind === "error")], 0);
    const client = await open("agents", { transcriptOpen: async () => ({ subscription: 1, revision: 1, rows: last, hasOlder: false, logEnd: 0, queue: [] }) });
    const sandboxContinueAt = vi.spyOn(client, "sandboxContinueAt");
    await openSandbox("s20");
    await fireEvent.click(await within(await screen.findByTestId("row-error")).findByTestId("error-action"));
    const continues = await screen.findByTestId("continues");
    expect(continues.textContent).toMatch(/Continues at \d\d:\d\d/);
    expect(within(screen.getByTestId("row-error")).queryByTestId("error-action")).toBeNull();
    await fireEvent.click(screen.getByTestId("continue-cancel"));
    await waitFor(() => expect(screen.queryByTestId("continues")).toBeNull());
    expect(sandboxContinueAt.mock.calls).toEqual([["s20", expect.any(Number)], ["s20", null]]);
  });

  it("starts a sandbox with Ctrl+Enter and opens its page", async () => {
    await open("full");
    await fireEvent.click(screen.getByTestId("new-sandbox"));
    const prompt = await screen.findByTestId("prompt-input");
    await fireEvent.input(prompt, { target: { value: "Stream the export" } });
    await waitFor(() => expect(screen.getByTestId("start-sandbox").getAttribute("aria-disabled")).toBeNull());
    await enter(prompt, { ctrlKey: true });
    await waitFor(() => expect(screen.getByTestId("status-badge").dataset.status).toBe("creating"));
    expect(screen.queryByTestId("new-sandbox-dialog")).toBeNull();
  });
});
