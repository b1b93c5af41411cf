import { describe, expect, it, vi } from "vitest";
import type { Client } from "../ipc/client";
import type { Frame, Item, Row, Snapshot } from "../types";
import { ACKNOWLEDGED_TOGETHER, FOLLOWED, READ, Transcript } from "./transcript.svelte";

const row = (at: number, item: Item = { kind: "text", text: `row ${at}` }): Row => ({ at, turn: 1, time: at, item });
const rows = (from: number, to: number): Row[] => Array.from({ length: to - from + 1 }, (_, index) => row(from + index));
const frame = (number: number, part: Partial<Frame> = {}): Frame => ({ number, revision: number, gap: false, rows: [], appends: [], logEnd: 0, queue: null, ...part });
const snapshot = (subscription: number, part: Partial<Snapshot> = {}): Snapshot => ({ subscription, revision: 1, rows: [], hasOlder: false, logEnd: 0, queue: [], ...part });

/** A transcript on an engine that answers with `snapshots` in turn; `draw` is the next picture. */
async function opened(...snapshots: Snapshot[]) {
  const handlers: ((frame: Frame) => void)[] = [];
  const client = {
    transcriptOpen: vi.fn(async (_: string, onFrame: (frame: Frame) => void) => {
      handlers.push(onFrame);
      return snapshots[Math.min(handlers.length, snapshots.length) - 1] as Snapshot;
    }),
    transcriptAcknowledge: vi.fn(async () => null),
    transcriptClose: vi.fn(async () => null),
    transcriptBefore: vi.fn(async (_: string, before: number) => rows(Math.max(1, before - 200), before - 1)),
  };
  const planned: (() => void)[] = [];
  const transcript = new Transcript(client as unknown as Client, "s1", (run) => planned.push(run));
  await transcript.open();
  return {
    transcript, client,
    send: (...frames: Frame[]) => frames.forEach((one) => handlers.at(-1)?.(one)),
    sendTo: (opening: number, one: Frame) => handlers[opening]?.(one),
    draw: () => planned.splice(0).forEach((run) => run()),
    ats: () => transcript.rows.map(({ at }) => at),
    settled: () => new Promise((resolve) => setTimeout(resolve)),
  };
}

describe("a transcript", () => {
  it("applies all frames of one picture at once and acknowledges several together", async () => {
    const { send, draw, ats, client } = await opened(snapshot(7, { rows: rows(1, 2) }));
    send(frame(1, { rows: [row(3)] }), frame(2, { rows: [row(4)] }));
    expect(ats(), "nothing changes before the picture").toEqual([1, 2]);
    draw();
    expect(ats()).toEqual([1, 2, 3, 4]);
    expect(client.transcriptAcknowledge).not.toHaveBeenCalled();
    for (let number = 3; number <= 2 * ACKNOWLEDGED_TOGETHER; number++) {
      send(frame(number));
      draw();
    }
    expect(client.transcriptAcknowledge.mock.calls).toEqual([[7, ACKNOWLEDGED_TOGETHER], [7, 2 * ACKNOWLEDGED_TOGETHER]]);
  });

  it("replaces the row with the same place and keeps the order whatever comes first", async () => {
    const { send, draw, transcript, ats } = await opened(snapshot(1, { rows: [row(1), row(5)] }));
    send(frame(1, { rows: [row(3), row(1, { kind: "text", text: "new" })] }));
    draw();
    expect(ats()).toEqual([1, 3, 5]);
    expect(transcript.rows[0]?.item).toEqual({ kind: "text", text: "new" });
  });

  it("appends text to text, thinking and output, also to a row of the same frame", async () => {
    const { send, draw, transcript } = await opened(snapshot(1, { rows: [row(1, { kind: "output", text: "a", isStderr: false })] }));
    send(frame(1, { rows: [row(2)], appends: [{ at: 1, text: "b" }, { at: 2, text: "!" }, { at: 99, text: "lost" }] }), frame(2, { appends: [{ at: 1, text: "c" }] }));
    draw();
    expect(transcript.rows.map(({ item }) => ("text" in item ? item.text : ""))).toEqual(["abc", "row 2!"]);
  });

  it.each([
    ["a hole in the numbers", frame(3)],
    ["a frame that says so", frame(2, { gap: true })],
  ])("opens anew after %s", async (_, broken) => {
    const { send, draw, ats, client, settled } = await opened(snapshot(1, { rows: rows(1, 2) }), snapshot(2, { rows: rows(1, 9) }));
    send(frame(1, { rows: [row(3)] }), broken);
    draw();
    await settled();
    expect(client.transcriptClose).toHaveBeenCalledWith(1);
    expect(client.transcriptOpen).toHaveBeenCalledTimes(2);
    expect(ats()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    send(frame(1, { rows: [row(10)] }));
    draw();
    expect(ats().at(-1), "the new numbering begins at 1").toBe(10);
  });

  it("ignores what an earlier opening still sends", async () => {
    const { sendTo, draw, ats, transcript } = await opened(snapshot(1), snapshot(2));
    await transcript.open();
    sendTo(0, frame(1, { rows: [row(1)] }));
    draw();
    expect(ats()).toEqual([]);
  });

  it("keeps a window while following: the oldest rows go and can be paged in again", async () => {
    const { send, draw, transcript } = await opened(snapshot(1));
    send(frame(1, { rows: rows(1, FOLLOWED + 500) }));
    draw();
    expect(transcript.rows.length).toBe(FOLLOWED);
    expect(transcript.rows[0]?.at).toBe(501);
    expect(transcript.hasOlder).toBe(true);
  });

  it("moves nothing for someone who reads further up, counts what is new, and shows it on request", async () => {
    const { send, draw, transcript, client, settled } = await opened(snapshot(1, { rows: rows(1, 100) }), snapshot(2, { rows: rows(9_900, 10_000), hasOlder: true }));
    transcript.unfollow();
    send(frame(1, { rows: rows(101, 10_000) }));
    draw();
    expect(transcript.rows[0]?.at).toBe(1);
    expect(transcript.rows.length).toBe(READ);
    expect(transcript.isCut).toBe(true);
    expect(transcript.unseen).toBe(9_900);
    send(frame(2, { rows: [row(10_001)] }));
    draw();
    expect(transcript.rows.at(-1)?.at, "a row after a cut would stand beside the wrong one").toBe(READ);
    transcript.follow();
    await settled();
    expect(client.transcriptOpen).toHaveBeenCalledTimes(2);
    expect(transcript.rows.at(-1)?.at).toBe(10_000);
    expect(transcript.isCut).toBe(false);
  });

  it("pages older rows in front and stops when there are none", async () => {
    const { transcript, ats, client } = await opened(snapshot(1, { rows: rows(301, 310), hasOlder: true }));
    transcript.unfollow();
    await Promise.all([transcript.loadOlder(), transcript.loadOlder()]);
    expect(client.transcriptBefore, "one page at a time").toHaveBeenCalledTimes(1);
    expect(ats()[0]).toBe(101);
    client.transcriptBefore.mockResolvedValueOnce([]);
    await transcript.loadOlder();
    expect(transcript.hasOlder).toBe(false);
  });

  it("keeps the reader's rows when it has to open anew meanwhile", async () => {
    const { send, draw, transcript, settled } = await opened(snapshot(1, { rows: rows(1, 50) }), snapshot(2, { rows: rows(5_000, 5_100), hasOlder: true }));
    transcript.unfollow();
    send(frame(1, { gap: true }));
    draw();
    await settled();
    expect(transcript.rows.map(({ at }) => at)).toEqual(rows(1, 50).map(({ at }) => at));
    expect(transcript.isCut).toBe(true);
  });
});
