import { describe, expect, it, vi } from "vitest";
import type { Client } from "../ipc/client";
import { createFake } from "../ipc/fake/fake";
import type { Storage, StorageEntry } from "../types";
import { Notices } from "./notices.svelte";
import { fillMessage, ProjectForm } from "./projectSettings.svelte";
import { StorageUse } from "./storageUse.svelte";
import { Trash } from "./trash.svelte";

const entry = (sandbox: string, isSafe: boolean, workspaceBytes = 10): StorageEntry => ({ sandbox, title: sandbox, project: "p1", status: "killed", bytes: workspaceBytes + 1, workspaceBytes, logBytes: 1, isSafe, reason: "", endedAt: 1, isDeleted: false });

function storageOf(...entries: StorageEntry[]) {
  const kept = [...entries];
  const client = { storage: vi.fn(async (): Promise<Storage> => ({ total: 0, mirrors: 0, database: 0, entries: [...kept] })), storageClean: vi.fn(async () => 10) };
  return { storage: new StorageUse(client as unknown as Client), client, kept };
}

describe("storage", () => {
  it("chooses nothing by itself, and nothing that is not safe", async () => {
    const { storage, client } = storageOf(entry("safe", true), entry("held", false), entry("empty", true, 0));
    await storage.load();
    expect(storage.chosen).toEqual([]);
    storage.toggle("held");
    expect(storage.chosen).toEqual([]);
    storage.chooseSafe();
    expect([storage.chosen.map(({ sandbox }) => sandbox), storage.chosenBytes]).toEqual([["safe"], 10]);
    await storage.clean();
    expect(client.storageClean).toHaveBeenCalledWith(["safe"]);
    expect(storage.chosen).toEqual([]);
  });

  it("lets go of what is no longer safe when it is measured again", async () => {
    const { storage, kept } = storageOf(entry("a", true), entry("b", true));
    await storage.load();
    storage.chooseSafe();
    kept[0] = entry("a", false);
    await storage.load();
    expect(storage.chosen.map(({ sandbox }) => sandbox)).toEqual(["b"]);
  });
});

describe("the trash", () => {
  it("follows what is deleted, restored and purged, and is not asked for before anyone looks", async () => {
    const client = createFake(new URLSearchParams());
    const list = vi.spyOn(client, "trashList");
    const trash = new Trash(client);
    await client.onChanged((change) => trash.apply(change));
    await client.sandboxDelete("s9");
    expect(list).not.toHaveBeenCalled();
    await trash.show(null);
    expect(trash.rows?.map(({ id }) => id)).toEqual(["s9", "s16", "s17"]);
    await trash.restore("s9");
    await trash.purge("s17");
    await vi.waitFor(() => expect(trash.rows?.map(({ id }) => id)).toEqual(["s16"]));
  });
});

describe("notices", () => {
  it("of something done offer to take it back, once, and go by themselves", async () => {
    vi.useFakeTimers();
    const notices = new Notices();
    const run = vi.fn(async () => null);
    notices.say("Moved to the trash: A", { label: "Undo", run });
    const id = notices.list[0]?.id ?? 0;
    notices.act(id);
    notices.act(id);
    expect(run).toHaveBeenCalledTimes(1);
    expect(notices.list).toEqual([]);
    notices.say("Freed");
    vi.advanceTimersByTime(60_000);
    expect(notices.list).toEqual([]);
    vi.useRealTimers();
  });
});

describe("a project's settings", () => {
  it("keep a switch at once and texts when they are saved, and refuse an address that is none", async () => {
    const client = createFake(new URLSearchParams());
    const set = vi.spyOn(client, "projectSettingsSet");
    const form = new ProjectForm(client, "p1");
    await form.load();
    form.write("commitAuthor", "Ada");
    await form.save({ isDraft: true });
    expect(set.mock.lastCall?.[1]).toMatchObject({ isDraft: true, commitAuthor: "Mara Lindqvist" });
    expect([form.isChanged, form.text("commitAuthor")]).toEqual([true, "Ada"]);
    form.write("commitEmail", "ada");
    await form.saveTexts();
    expect([form.problems.has("commitEmail"), set.mock.calls.length]).toEqual([true, 1]);
    form.write("commitEmail", "ada@example.org");
    await form.saveTexts();
    expect(form.value).toMatchObject({ isDraft: true, commitAuthor: "Ada", commitEmail: "ada@example.org" });
    expect(form.isChanged).toBe(false);
  });

  it("fill the commit message's placeholders wherever they stand", () => {
    expect(fillMessage("{title} ({sandbox})\n{title} {other}", "Retry $&", "0192")).toBe("Retry $& (0192)\nRetry $& {other}");
  });
});
