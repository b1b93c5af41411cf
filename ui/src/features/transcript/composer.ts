/** What the composer can do now, and what Enter means: one pure decision, so that button, hint and key never disagree. */
import type { Sandbox } from "../../lib/types";

export type Composing =
  /** Enter sends; `interrupts`: Ctrl+Enter interrupts first, Enter queues. */
  | { kind: "send" }
  | { kind: "queue" }
  /** Nothing can be sent now, but the draft stays and can be written on. */
  | { kind: "wait"; why: "creating" | "pausing" | "resuming" | "stopping" }
  | { kind: "resume" }
  | { kind: "ended" }
  | { kind: "workflow" };

export function composing(sandbox: Pick<Sandbox, "status" | "activity" | "isWorking">, canSend: boolean): Composing {
  if (sandbox.status === "killed" || sandbox.status === "error") return { kind: "ended" };
  if (!canSend) return { kind: "workflow" };
  if (sandbox.activity !== "none") return { kind: "wait", why: sandbox.activity };
  if (sandbox.status === "creating") return { kind: "wait", why: "creating" };
  if (sandbox.status === "paused") return { kind: "resume" };
  return sandbox.isWorking ? { kind: "queue" } : { kind: "send" };
}

export type KeyPress = Pick<KeyboardEvent, "key" | "shiftKey" | "ctrlKey" | "metaKey" | "altKey" | "isComposing"> & { keyCode?: number };
export type Pressed = "queue" | "interrupt" | "stopTurn" | "nothing" | null;

/** What a key does in the composer; null leaves it to the text field. */
export function pressed(event: KeyPress, now: Composing, hasText: boolean): Pressed {
  // While an input method composes, Enter chooses a word (WebKit reports 229 for it after the composition has ended).
  if (event.isComposing || event.keyCode === 229) return null;
  if (event.key === "Escape") return now.kind === "queue" ? "stopTurn" : null;
  if (event.key !== "Enter" || event.shiftKey || event.altKey) return null;
  if (now.kind !== "send" && now.kind !== "queue") return "nothing";
  if (!hasText) return "nothing";
  return now.kind === "queue" && (event.ctrlKey || event.metaKey) ? "interrupt" : "queue";
}
