/**
 * The engine as the window sees it. Only this folder imports Tauri; everything else gets a `Client`, so that tests and a plain
 * browser can be given a fake one. A command resolves with its answer or throws a `CourierError`.
 */
import { Channel } from "@tauri-apps/api/core";
import { commands, events } from "./bindings";
import type { Changed, ErrorCode, Frame, IpcError, Navigate, Snapshot } from "./bindings";

export class CourierError extends Error {
  readonly code: ErrorCode;
  readonly detail: string | null;

  constructor(error: IpcError) {
    super(error.message);
    this.name = "CourierError";
    this.code = error.code;
    this.detail = error.detail;
  }

  /** Whatever was thrown, as something that can be shown. */
  static from(thrown: unknown): CourierError {
    if (thrown instanceof CourierError) return thrown;
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    return new CourierError({ code: "internal", message, detail: null });
  }
}

type Answer<T> = { status: "ok"; data: T } | { status: "error"; error: IpcError };
type Unwrapped<C> = C extends (...args: infer A) => Promise<infer R>
  ? (...args: A) => Promise<R extends { status: "ok"; data: infer T } ? T : never>
  : never;
type Commands = { [K in keyof typeof commands]: Unwrapped<(typeof commands)[K]> };

export interface Client extends Omit<Commands, "transcriptOpen"> {
  transcriptOpen(sandbox: string, onFrame: (frame: Frame) => void): Promise<Snapshot>;
  onChanged(handler: (change: Changed) => void): Promise<() => void>;
  onNavigate(handler: (target: Navigate) => void): Promise<() => void>;
}

async function unwrap<T>(pending: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await pending;
  } catch (thrown) {
    throw CourierError.from(thrown);
  }
  if (answer.status === "error") throw new CourierError(answer.error);
  return answer.data;
}

export function createClient(): Client {
  const unwrapped = Object.fromEntries(
    Object.entries(commands).map(([name, command]) => [
      name,
      (...args: unknown[]) => unwrap((command as (...args: unknown[]) => Promise<Answer<unknown>>)(...args)),
    ]),
  ) as unknown as Commands;
  return {
    ...unwrapped,
    transcriptOpen: (sandbox, onFrame) => {
      const frames = new Channel<Frame>();
      frames.onmessage = onFrame;
      return unwrapped.transcriptOpen(sandbox, frames);
    },
    onChanged: (handler) => events.changed.listen((event) => handler(event.payload)),
    onNavigate: (handler) => events.navigate.listen((event) => handler(event.payload)),
  };
}
