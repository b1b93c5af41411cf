import { describe, expect, it } from "vitest";
import type { Activity, Status } from "../../lib/types";
import { composing, pressed, type KeyPress } from "./composer";

const sandbox = (status: Status, activity: Activity = "none", isWorking = false) => ({ status, activity, isWorking });
const key = (name: string, part: Partial<KeyPress> = {}): KeyPress => ({ key: name, shiftKey: false, ctrlKey: false, metaKey: false, altKey: false, isComposing: false, ...part });

describe("the composer", () => {
  it("knows what can be done in every state", () => {
    expect(composing(sandbox("running"), true)).toEqual({ kind: "send" });
    expect(composing(sandbox("running", "none", true), true)).toEqual({ kind: "queue" });
    expect(composing(sandbox("running", "stopping", true), true)).toEqual({ kind: "wait", why: "stopping" });
    expect(composing(sandbox("running", "pausing"), true)).toEqual({ kind: "wait", why: "pausing" });
    expect(composing(sandbox("paused", "resuming"), true)).toEqual({ kind: "wait", why: "resuming" });
    expect(composing(sandbox("creating"), true)).toEqual({ kind: "wait", why: "creating" });
    expect(composing(sandbox("paused"), true)).toEqual({ kind: "resume" });
    expect(composing(sandbox("killed"), true)).toEqual({ kind: "ended" });
    expect(composing(sandbox("error"), false)).toEqual({ kind: "ended" });
    expect(composing(sandbox("running"), false)).toEqual({ kind: "workflow" });
  });

  it("sends with Enter, makes a line with Shift+Enter, and interrupts with Ctrl+Enter only while the agent works", () => {
    expect(pressed(key("Enter"), { kind: "send" }, true)).toBe("queue");
    expect(pressed(key("Enter", { ctrlKey: true }), { kind: "send" }, true)).toBe("queue");
    expect(pressed(key("Enter"), { kind: "queue" }, true)).toBe("queue");
    expect(pressed(key("Enter", { metaKey: true }), { kind: "queue" }, true)).toBe("interrupt");
    expect(pressed(key("Enter", { shiftKey: true }), { kind: "queue" }, true)).toBeNull();
    expect(pressed(key("Enter"), { kind: "send" }, false)).toBe("nothing");
  });

  it("keeps the draft where nothing can be sent", () => {
    for (const now of [{ kind: "resume" }, { kind: "wait", why: "creating" }] as const) expect(pressed(key("Enter"), now, true)).toBe("nothing");
  });

  it("stops the turn with Escape only while the agent works", () => {
    expect(pressed(key("Escape"), { kind: "queue" }, true)).toBe("stopTurn");
    expect(pressed(key("Escape"), { kind: "send" }, true)).toBeNull();
  });

  it("leaves Enter and Escape to an input method that composes", () => {
    expect(pressed(key("Enter", { isComposing: true }), { kind: "send" }, true)).toBeNull();
    expect(pressed(key("Enter", { keyCode: 229 }), { kind: "send" }, true)).toBeNull();
    expect(pressed(key("Escape", { isComposing: true }), { kind: "queue" }, true)).toBeNull();
  });
});
