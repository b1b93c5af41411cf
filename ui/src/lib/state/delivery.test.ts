import { describe, expect, it, vi } from "vitest";
import type { Client } from "../ipc/client";
import { sandbox } from "../ipc/fake/data";
import { opened } from "../ipc/fake/work";
import type { Delivery, Step, StepKind, StepStatus } from "../types";
import { deliveryState, isSaved, SandboxDelivery } from "./delivery.svelte";

const step = (kind: StepKind, status: StepStatus): Step => ({ kind, status, detail: "", remedy: "", attempts: 1, at: 0 });
const delivery = (change: Partial<Delivery> = {}): Delivery => ({ steps: [], branch: "b", pushedBranch: null, pushedCommit: null, pullRequest: null, isRunning: false, held: null, target: "t", compareUrl: null, ...change });
const kind = (change: Partial<Delivery>, of = sandbox("a", "A")) => deliveryState(delivery(change), of).kind;

describe("a delivery", () => {
  it("is about what waits for the person before anything that is done", () => {
    const held = { workflows: [".github/workflows/x.yml"], lfs: [] };
    expect(kind({})).toBe("ready");
    expect(kind({ isRunning: true, held, steps: [step("push", "failed")] })).toBe("running");
    expect(kind({}, sandbox("a", "A", { activity: "stopping" }))).toBe("running");
    expect(kind({ held, pullRequest: opened(1) })).toBe("held");
    expect(kind({ steps: [step("push", "failed")], pullRequest: opened(1) })).toBe("failed");
    expect(kind({ steps: [step("push", "skipped")] })).toBe("nothing");
  });

  it("follows the pull request to its end, the sandbox's word before its own", () => {
    expect(kind({ pullRequest: opened(1) })).toBe("opened");
    expect(kind({ pullRequest: opened(1, { isClosed: true }) })).toBe("closed");
    expect(kind({ pullRequest: opened(1) }, sandbox("a", "A", { pullRequest: opened(1, { status: "merged" }) }))).toBe("merged");
    expect(kind({ pullRequest: opened(1, { status: "skipped", reason: "no remote" }) })).toBe("skipped");
  });

  it("has saved the work once the checkpoint is done", () => {
    expect([null, delivery(), delivery({ steps: [step("checkpoint", "running")] }), delivery({ steps: [step("checkpoint", "done"), step("push", "running")] })].map(isSaved)).toEqual([false, false, false, true]);
  });

  it("says only what the person said, and is never confirmed by itself", async () => {
    const client = { delivery: vi.fn(async () => delivery()), sandboxDeliver: vi.fn(async () => null) };
    await new SandboxDelivery(client as unknown as Client, "s1").deliver({ title: "T" });
    expect(client.sandboxDeliver).toHaveBeenCalledWith("s1", { title: "T", body: null, isDraft: null, isConfirmed: false });
    expect(client.delivery).toHaveBeenCalledTimes(1);
  });
});
