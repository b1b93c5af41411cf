import { describe, expect, it, vi } from "vitest";
import type { Client } from "../ipc/client";
import type { ChangedFile, Changes, Checkpoint } from "../types";
import { ChangesLayout, endsOf, SandboxChanges } from "./changes.svelte";

const checkpoint = (id: string, turn: number | null): Checkpoint => ({ id, name: id, turn, commit: "c", at: 0, filesChanged: 1, skipped: [], lfs: [] });
const file: ChangedFile = { path: "a", oldPath: null, kind: "modified", added: 3, removed: 1, isBinary: false, sizeBefore: 1, sizeAfter: 1, isLfs: false, isSubmodule: false };
const some: Changes = { files: [file], more: 0, added: 3, removed: 1 };

function changesOf(...made: Checkpoint[]) {
  const client = {
    sandboxCheckpoints: vi.fn(async () => [...made]),
    changes: vi.fn(async () => some),
    changesFile: vi.fn(async (_id: string, _from: string | null, _to: string | null, path: string) => ({ path, patch: "", before: null, after: null, note: null, isHuge: true })),
  };
  return { changes: new SandboxChanges(client as unknown as Client, "s1"), client, made };
}

describe("what a sandbox changed", () => {
  it("reads a turn as what lies between its last checkpoint and the one before its first", () => {
    const all = [checkpoint("a", 1), checkpoint("b", null), checkpoint("c", 2), checkpoint("d", 2), checkpoint("e", null)];
    expect(endsOf({ kind: "turn", turn: 1 }, all)).toEqual({ from: null, to: "a" });
    expect(endsOf({ kind: "turn", turn: 2 }, all)).toEqual({ from: "b", to: "d" });
    expect(endsOf({ kind: "all" }, all)).toEqual({ from: null, to: null });
    expect(endsOf({ kind: "between", from: "c", to: "a" }, all)).toEqual({ from: "c", to: "a" });
  });

  it("compares again only once there is a newer checkpoint", async () => {
    const { changes, client, made } = changesOf(checkpoint("a", 1));
    await changes.load();
    await changes.load();
    expect(client.changes).toHaveBeenCalledTimes(1);
    expect(changes.total).toEqual({ added: 3, removed: 1 });
    made.push(checkpoint("b", 2));
    await changes.load();
    expect(client.changes).toHaveBeenCalledTimes(2);
    expect(changes.end?.id).toBe("b");
  });

  it("asks for a file once, again when it is wanted all the same, and anew for another part", async () => {
    const { changes, client } = changesOf(checkpoint("a", 1), checkpoint("b", 2));
    await changes.load();
    changes.need(file);
    changes.need(file);
    expect(client.changesFile).toHaveBeenCalledTimes(1);
    changes.need(file, true);
    expect(client.changesFile).toHaveBeenLastCalledWith("s1", null, null, "a", null, true);
    changes.show({ kind: "turn", turn: 2 });
    expect(changes.file("a")).toBeNull();
    changes.need(file);
    expect(client.changesFile).toHaveBeenLastCalledWith("s1", "a", "b", "a", null, false);
    expect(changes.end?.id).toBe("b");
  });

  it("is laid out as it was left", () => {
    const layout = new ChangesLayout();
    expect([layout.layout, layout.hasTree]).toEqual(["unified", true]);
    layout.layout = "split";
    layout.hasTree = false;
    expect([new ChangesLayout().layout, new ChangesLayout().hasTree]).toEqual(["split", false]);
  });
});
