/** What the person sees of the work: changes, deliveries, pull requests, the trash. */
import { configure, fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { describe, expect, it, vi } from "vitest";
import App from "./App.svelte";
import type { Client } from "./lib/ipc/client";
import { sandbox } from "./lib/ipc/fake/data";
import { createFake, failure } from "./lib/ipc/fake/fake";
import { opened } from "./lib/ipc/fake/work";
import { Courier } from "./lib/state/courier.svelte";
import { remember } from "./lib/storage";
import type { Changed, Delivery, Step } from "./lib/types";

/** Whole windows on a busy machine. */
configure({ asyncUtilTimeout: 5_000 });
vi.setConfig({ testTimeout: 30_000 });

async function open(id: string | null, change: Partial<Client> = {}, scene = "full") {
  delete document.documentElement.dataset.ready;
  remember("place", { project: null, sandbox: id });
  const client = { ...createFake(new URLSearchParams({ scene })), ...change };
  render(App, { courier: new Courier(client) });
  await waitFor(() => expect(document.documentElement.dataset.ready).toBe("true"));
  return client;
}

async function openChanges(id: string, change: Partial<Client> = {}) {
  const client = await open(id, change);
  await fireEvent.click(await screen.findByTestId("tab-changes"));
  return client;
}

const file = (path: string) => waitFor(() => {
  const found = document.querySelector<HTMLElement>(`[data-testid="file"][data-file="${path}"]`);
  if (found === null) throw new Error(`${path} is not drawn`);
  return found;
});
/** The first in the tree's order: it is drawn wherever there is room for anything. */
const FIRST = ".github/workflows/release.yml";
const show = (words: string) => fireEvent.input(screen.getByTestId("changes-filter"), { target: { value: words } });

describe("the changes", () => {
  it("show what differs, and say on the tab how much", async () => {
    await openChanges("s2");
    const first = await file(FIRST);
    await waitFor(() => expect(first.textContent).toContain("export const after0 = given(0);"));
    expect(screen.getByTestId("tab-changes").textContent).toContain("+9,279");
    expect(screen.getByTestId("changes-summary").textContent).toBe("16 files since main at 4be19c2");
  });

  it("show hostile names and contents as what they are", async () => {
    await openChanges("s2");
    await file(FIRST);
    await show("gnp");
    const hostile = await file("src/legacy/\u202egnp.exe");
    await waitFor(() => expect(hostile.textContent).toContain("⟦LRI⟧if (isAdmin)⟦PDI⟧"));
    expect(hostile.querySelector("img")).toBeNull();
    expect(document.body.textContent).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
  });

  it("summarise what cannot be read, and show what is huge all the same when asked", async () => {
    const client = await openChanges("s2");
    const asked = vi.spyOn(client, "changesFile");
    await file(FIRST);
    await show("harbor.png");
    await waitFor(async () => expect((await file("assets/harbor.png")).textContent).toContain("Binary file41 KB to 28 KB"));
    await show("package-lock");
    await fireEvent.click(await within(await file("package-lock.json")).findByTestId("file-show-anyway"));
    await screen.findByText("Only the first 4,000 lines are shown.");
    expect(asked).toHaveBeenLastCalledWith("s2", null, null, "package-lock.json", null, true);
    expect(screen.getByTestId("diff-more").textContent).toBe("Show 3600 more lines");
  });

  it("lay out side by side, and stay so", async () => {
    await openChanges("s2");
    await file(FIRST);
    await show("fetch.ts");
    const changed = await file("src/http/fetch.ts");
    await fireEvent.click(screen.getByTestId("layout-split"));
    await waitFor(() => expect(changed.querySelectorAll(".pair").length).toBeGreaterThan(10));
    expect(localStorage.getItem("courier:changes:layout")).toBe('"split"');
  });

  it("open the unchanged lines between two hunks where the text is known", async () => {
    await openChanges("s2");
    await file(FIRST);
    await show("fetch.ts");
    const changed = await file("src/http/fetch.ts");
    const before = (await within(changed).findByText("31 lines unchanged")).closest(".diff")?.querySelectorAll(".line").length ?? 0;
    await fireEvent.click(within(changed).getByTestId("diff-gap"));
    expect(changed.querySelectorAll(".line").length).toBe(before + 31);
  });

  it("are asked for again for one turn, and between two checkpoints", async () => {
    const client = await openChanges("s2");
    const changes = vi.spyOn(client, "changes");
    await fireEvent.click(await screen.findByTestId("range-turn-3"));
    await screen.findByText("Turn 3 changed no file.");
    expect(changes).toHaveBeenLastCalledWith("s2", "s2-c2", "s2-c3");
    await fireEvent.click(screen.getByTestId("range-between"));
    await fireEvent.change(await screen.findByTestId("range-from"), { target: { value: "s2-c1" } });
    await waitFor(() => expect(changes).toHaveBeenLastCalledWith("s2", "s2-c1", "s2-c3"));
  });

  it("move from file to file with the letters, wherever in them the focus is, and start no sandbox with N", async () => {
    await openChanges("s2");
    await file(FIRST);
    const tree = screen.getByTestId("changes-tree");
    const selected = () => document.querySelector<HTMLElement>('[data-testid="changes-file"][aria-selected="true"]')?.dataset.path;
    for (const key of ["j", "j", "k"]) await fireEvent.keyDown(tree, { key });
    await waitFor(() => expect(selected()).toBe(".github/workflows/release.yml"));
    await fireEvent.keyDown(screen.getByTestId("changes-contents"), { key: "n" });
    expect(screen.queryByTestId("new-sandbox-dialog")).toBeNull();
  });

  it("name what a checkpoint could not take, and why", async () => {
    await openChanges("s2");
    await fireEvent.click(await screen.findByTestId("changes-skipped-toggle"));
    expect(screen.getByTestId("changes-skipped").textContent).toContain("data/dump.sqllarger than 100 MB (214 MB)");
  });

  it("say what restoring does before it is done, and only offer it while no turn runs", async () => {
    const checkpointRestore = vi.fn(async () => null);
    await openChanges("s2", { checkpointRestore });
    await fireEvent.click(await screen.findByTestId("checkpoint-menu"));
    expect(screen.getByTestId("menu-restore-checkpoint").getAttribute("aria-disabled")).toBe("true");
    await fireEvent.click(screen.getAllByTestId("sandbox-row").find((row) => row.dataset.id === "s4") as HTMLElement);
    await fireEvent.click(screen.getByTestId("tab-changes"));
    await screen.findByTestId("range-turn-2");
    await fireEvent.click(screen.getByTestId("range-turn-2"));
    await fireEvent.click(screen.getByTestId("checkpoint-menu"));
    await fireEvent.click(screen.getByTestId("menu-restore-checkpoint"));
    expect(checkpointRestore).not.toHaveBeenCalled();
    await fireEvent.click(await screen.findByTestId("restore-checkpoint-confirm"));
    expect(checkpointRestore).toHaveBeenCalledWith("s4", "s4-c2");
  });

  it("begin a new sandbox from a checkpoint, which the dialog names", async () => {
    const client = await openChanges("s2");
    const create = vi.spyOn(client, "sandboxCreate");
    await fireEvent.click(await screen.findByTestId("range-turn-2"));
    await fireEvent.click(screen.getByTestId("checkpoint-menu"));
    await fireEvent.click(screen.getByTestId("menu-begin-here"));
    expect((await screen.findByTestId("begin-from")).textContent).toContain("From turn 2 of Retry idempotent requests with backoff");
    expect(screen.queryByTestId("include-uncommitted")).toBeNull();
    await fireEvent.input(screen.getByTestId("prompt-input"), { target: { value: "go on" } });
    await waitFor(() => expect(screen.getByTestId("start-sandbox").getAttribute("aria-disabled")).toBeNull());
    await fireEvent.click(screen.getByTestId("start-sandbox"));
    expect(create.mock.lastCall?.[0]).toMatchObject({ begin: { sandbox: "s2", checkpoint: "s2-c2" }, parent: "s2", prompt: "go on" });
  });

  it("say what failed, and try again", async () => {
    const whole = createFake(new URLSearchParams());
    let isBroken = true;
    await openChanges("s2", { changes: (...range) => (isBroken ? Promise.reject(failure("internal", "the vault could not be opened")) : whole.changes(...range)) });
    await screen.findByText("the vault could not be opened");
    isBroken = false;
    await fireEvent.click(within(screen.getByTestId("changes")).getByTestId("error-action"));
    await file(FIRST);
  });
});

describe("a delivery", () => {
  it("shows each step as it happens, until the pull request is open", async () => {
    const whole = createFake(new URLSearchParams());
    let now: Partial<Delivery> = {};
    let emit: (change: Changed) => void = () => {};
    const step = (kind: Step["kind"], status: Step["status"]): Step => ({ kind, status, detail: "", remedy: "", attempts: 1, at: 1 });
    const sandboxDeliver = vi.fn(async () => {
      now = { isRunning: true, steps: [step("checkpoint", "done"), step("push", "running"), step("pull_request", "pending")] };
      return null;
    });
    await openChanges("s2", { sandboxDeliver, delivery: async (id) => ({ ...(await whole.delivery(id)), ...now }), onChanged: async (handler) => ((emit = handler), () => {}) });
    await fireEvent.click(await screen.findByTestId("delivery-edit"));
    const title = (await screen.findByTestId("pull-request-title")) as HTMLInputElement;
    expect(title.value).toBe("Retry idempotent requests with backoff");
    await fireEvent.input(title, { target: { value: "Retry with backoff" } });
    await fireEvent.click(screen.getByTestId("pull-request-confirm"));
    await waitFor(() => expect(screen.getByTestId("delivery").dataset.state).toBe("running"));
    expect(screen.getAllByTestId("step").map(({ dataset }) => [dataset.kind, dataset.status])).toEqual([["checkpoint", "done"], ["push", "running"], ["pull_request", "pending"]]);
    now = { isRunning: false, steps: [] };
    emit({ kind: "sandbox", revision: 9, sandbox: sandbox("s2", "Retry", { isWorking: true, revision: 9, pullRequest: opened(419) }) });
    await waitFor(() => expect(screen.getByTestId("delivery").dataset.state).toBe("opened"), { timeout: 5_000 });
    expect(screen.getByTestId("pull-request").dataset.number).toBe("419");
  });

  it("sends what was written, as a draft where that is chosen, and keeps it where it fails", async () => {
    const sandboxDeliver = vi.fn(() => Promise.reject(failure("network", "github.com did not answer")));
    await open("s2", { sandboxDeliver });
    await fireEvent.click(await screen.findByTestId("page-menu"));
    await fireEvent.click(screen.getByTestId("menu-save"));
    const body = (await screen.findByTestId("pull-request-body")) as HTMLTextAreaElement;
    await fireEvent.input(body, { target: { value: "Why and how" } });
    await fireEvent.click(screen.getByTestId("pull-request-draft"));
    await fireEvent.click(screen.getByTestId("pull-request-confirm"));
    expect(sandboxDeliver).toHaveBeenCalledWith("s2", { title: "Retry idempotent requests with backoff", body: "Why and how", isDraft: true, isConfirmed: false });
    await screen.findByText("github.com did not answer");
    expect(body.value).toBe("Why and how");
  });

  it("holds a push that changes workflows until the person confirms it", async () => {
    const sandboxDeliver = vi.fn(async () => null);
    await open("s7", { sandboxDeliver });
    expect((await screen.findByTestId("delivery-held")).textContent).toContain(".github/workflows/release.yml");
    await fireEvent.click(screen.getByTestId("held-push"));
    expect(sandboxDeliver).not.toHaveBeenCalled();
    await fireEvent.click(await screen.findByTestId("push-held-confirm"));
    expect(sandboxDeliver).toHaveBeenCalledWith("s7", { title: null, body: null, isDraft: null, isConfirmed: true });
  });

  it("offers to push again where that failed, also on a sandbox that has ended", async () => {
    const sandboxDeliver = vi.fn(async () => null);
    await open("s10", { sandboxDeliver });
    expect((await screen.findByTestId("delivery-failed")).textContent).toContain("github.com did not answer.");
    await fireEvent.click(screen.getByTestId("delivery-retry"));
    expect(sandboxDeliver).toHaveBeenCalledWith("s10", { title: null, body: null, isDraft: null, isConfirmed: false });
  });

  it("shows where the pull request leads before it opens it", async () => {
    const linkOpen = vi.fn(async () => null);
    await open("s9", { linkOpen });
    await fireEvent.click((await screen.findAllByTestId("pull-request"))[0] as HTMLElement);
    expect((await screen.findByTestId("link-target")).textContent).toBe("https://github.com/acme/harbor-api/pull/412");
    expect(linkOpen).not.toHaveBeenCalled();
    await fireEvent.click(screen.getByTestId("link-open"));
    expect(linkOpen).toHaveBeenCalledWith("https://github.com/acme/harbor-api/pull/412");
  });

  it("asks before a second stop that would lose something", async () => {
    const whole = createFake(new URLSearchParams());
    const sandboxStop = vi.fn(async () => null);
    await open("s5", { sandboxStop, delivery: async (id) => ({ ...(await whole.delivery(id)), steps: [] }) });
    await waitFor(() => expect(screen.getByTestId("stop").textContent).toContain("Stop without saving"));
    await fireEvent.click(screen.getByTestId("stop"));
    expect(sandboxStop).not.toHaveBeenCalled();
    await fireEvent.click(await screen.findByTestId("stop-now-confirm"));
    expect(sandboxStop).toHaveBeenCalledWith("s5");
  });
});

describe("the trash", () => {
  const row = (id: string) => screen.queryAllByTestId("sandbox-row").find((one) => one.dataset.id === id);
  /** Only what the list has room for is drawn. */
  const search = (words: string) => fireEvent.input(screen.getByTestId("search"), { target: { value: words } });

  it("takes the chosen sandbox with Del, and gives it back", async () => {
    const client = await open("s9");
    const restore = vi.spyOn(client, "sandboxRestore");
    await search("webhook");
    await waitFor(() => expect(row("s9")).toBeDefined());
    await fireEvent.keyDown(screen.getByTestId("sandbox-list"), { key: "Delete" });
    await waitFor(() => expect(row("s9")).toBeUndefined());
    expect(screen.queryByTestId("status-badge")).toBeNull();
    await fireEvent.click(within(await screen.findByTestId("notice")).getByTestId("notice-action"));
    expect(restore).toHaveBeenCalledWith("s9");
    await waitFor(() => expect(row("s9")).toBeDefined());
  });

  it("does not take a sandbox that is live", async () => {
    const sandboxDelete = vi.fn(async () => null);
    await open("s4", { sandboxDelete });
    await waitFor(() => expect(row("s4")).toBeDefined());
    await fireEvent.keyDown(screen.getByTestId("sandbox-list"), { key: "Delete" });
    await fireEvent.contextMenu(row("s4") as HTMLElement);
    await fireEvent.click(await screen.findByTestId("menu-delete"));
    expect(sandboxDelete).not.toHaveBeenCalled();
  });

  it("names what exists nowhere else before anything is gone for good", async () => {
    const client = await open(null);
    const purge = vi.spyOn(client, "sandboxPurge");
    await fireEvent.click(screen.getByTestId("nav-trash"));
    await fireEvent.click((await screen.findAllByTestId("trash-purge"))[0] as HTMLElement);
    const facts = await screen.findByTestId("purge-only-here");
    expect(facts.textContent).toContain("1 unpushed commit");
    expect(facts.textContent).toContain("data/dump.sql");
    expect(purge).not.toHaveBeenCalled();
    await fireEvent.click(screen.getByTestId("purge-confirm"));
    await waitFor(() => expect(screen.getAllByTestId("trash-row").map(({ dataset }) => dataset.id)).toEqual(["s17"]));
  });

  it("is emptied only once it was said what is in it", async () => {
    const client = await open(null);
    const empty = vi.spyOn(client, "trashEmpty");
    await fireEvent.click(screen.getByTestId("nav-trash"));
    await fireEvent.click(await screen.findByTestId("trash-empty"));
    expect((await screen.findByTestId("empty-trash-holds")).textContent).toContain("Try three allocators");
    expect(empty).not.toHaveBeenCalled();
    await fireEvent.click(screen.getByTestId("empty-trash-confirm"));
    await screen.findByTestId("trash-is-empty");
  });
});
