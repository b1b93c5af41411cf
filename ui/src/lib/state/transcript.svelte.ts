/**
 * The conversation of one open sandbox. A snapshot brings the newest rows, numbered frames bring what follows; a hole in the
 * numbers, or a frame that says `gap`, means opening anew. Frames are applied once per drawn picture, however many arrive.
 *
 * Only a window of rows is kept. While the reader is at the end, the oldest rows go: what fast output leaves behind is soon
 * forgotten, and asked for again by whoever scrolls up. While they read further up, rows beyond a larger window's end are not kept (`isCut`), so that nothing they look at moves, and going to the newest opens anew.
 */
import { CourierError, type Client } from "../ipc/client";
import type { Append, Frame, Message, Row, Snapshot } from "../types";

export const FOLLOWED = 200;
export const READ = 1_600;
/** How many frames are acknowledged with one call: each call costs as much as a frame, and the shell waits only after twice as many. */
export const ACKNOWLEDGED_TOGETHER = 4;

type Schedule = (run: () => void) => void;

export class Transcript {
  #client: Client;
  #sandbox: string;
  #schedule: Schedule;

  #rows = $state.raw<Row[]>([]);
  #phase = $state<"loading" | "ready" | "failed">("loading");
  #error = $state.raw<CourierError | null>(null);
  #hasOlder = $state(false);
  #isLoadingOlder = $state(false);
  #isCut = $state(false);
  #isFollowing = $state(true);
  #unseen = $state(0);
  #logEnd = $state(0);
  #queue = $state.raw<Message[]>([]);
  /** When the agent was last heard of. */

  /** Which opening answers belong to: whatever an earlier one still sends is ignored. */
  #opening = 0;
  #subscription: number | null = null;
  #expected = 1;
  #acknowledged = 0;
  #waiting: Frame[] = [];
  #isScheduled = false;

  constructor(client: Client, sandbox: string, schedule: Schedule = onNextPicture) {
    this.#client = client;
    this.#sandbox = sandbox;
    this.#schedule = schedule;
  }

  get rows() { return this.#rows; }
  get phase() { return this.#phase; }
  get error() { return this.#error; }
  get hasOlder() { return this.#hasOlder; }
  get isLoadingOlder() { return this.#isLoadingOlder; }
  get isCut() { return this.#isCut; }
  get isFollowing() { return this.#isFollowing; }
  get unseen() { return this.#unseen; }
  get logEnd() { return this.#logEnd; }
  get queue() { return this.#queue; }

  async open(): Promise<void> {
    const opening = ++this.#opening;
    this.#release();
    this.#waiting = [];
    try {
      const snapshot = await this.#client.transcriptOpen(this.#sandbox, (frame) => this.#receive(opening, frame));
      if (opening !== this.#opening) {
        void this.#client.transcriptClose(snapshot.subscription).catch(ignore);
        return;
      }
      this.#begin(snapshot);
    } catch (thrown) {
      if (opening !== this.#opening) return;
      this.#error = CourierError.from(thrown);
      this.#phase = "failed";
    }
  }

  close(): void {
    this.#opening++;
    this.#release();
  }

  /** The reader is at the end and stays there. */
  follow(): void {
    this.#isFollowing = true;
    this.#unseen = 0;
    if (this.#isCut) void this.open();
    else this.#trim();
  }

  /** The reader looks at something further up: it must not move. */
  unfollow(): void {
    this.#isFollowing = false;
  }

  async loadOlder(): Promise<void> {
    const first = this.#rows[0];
    if (first === undefined || !this.#hasOlder || this.#isLoadingOlder) return;
    const opening = this.#opening;
    this.#isLoadingOlder = true;
    try {
      const older = await this.#client.transcriptBefore(this.#sandbox, first.at);
      if (opening !== this.#opening || this.#rows[0]?.at !== first.at) return;
      this.#hasOlder = older.length > 0;
      this.#rows = [...older, ...this.#rows];
      this.#trim();
    } catch (thrown) {
      // Old rows can be asked for again by scrolling; the conversation itself stays.
      if (opening === this.#opening) this.#error = CourierError.from(thrown);
    } finally {
      this.#isLoadingOlder = false;
    }
  }

  #begin(snapshot: Snapshot): void {
    this.#subscription = snapshot.subscription;
    this.#expected = 1;
    this.#acknowledged = 0;
    this.#logEnd = snapshot.logEnd;
    this.#queue = snapshot.queue;
    this.#error = null;
    this.#phase = "ready";
    const last = this.#rows.at(-1);
    if (this.#isFollowing || last === undefined) {
      this.#rows = snapshot.rows;
      this.#hasOlder = snapshot.hasOlder;
      this.#isCut = false;
    } else {
      // Someone reads further up: join on where the rows overlap, else leave theirs alone.
      const first = snapshot.rows[0];
      if (first !== undefined && first.at <= last.at && !this.#isCut) this.#rows = put(this.#rows, snapshot.rows);
      else if (first !== undefined) this.#isCut = true;
    }
    this.#plan();
  }

  #receive(opening: number, frame: Frame): void {
    if (opening !== this.#opening) return;
    this.#waiting.push(frame);
    this.#plan();
  }

  #plan(): void {
    // Frames may come before the snapshot they follow; they wait for it.
    if (this.#isScheduled || this.#subscription === null || this.#waiting.length === 0) return;
    this.#isScheduled = true;
    this.#schedule(() => {
      this.#isScheduled = false;
      this.#apply();
    });
  }

  #apply(): void {
    const subscription = this.#subscription;
    if (subscription === null) return;
    const frames = this.#waiting;
    this.#waiting = [];
    let rows = this.#rows;
    for (const frame of frames) {
      if (frame.gap || frame.number !== this.#expected) {
        this.#rows = rows;
        void this.open();
        return;
      }
      this.#expected++;
      rows = this.#applyRows(rows, frame.rows);
      rows = append(rows, frame.appends);
      this.#logEnd = Math.max(this.#logEnd, frame.logEnd);
      if (frame.queue !== null) this.#queue = frame.queue;
    }
    this.#rows = rows;
    this.#trim();
    const applied = this.#expected - 1;
    if (applied - this.#acknowledged < ACKNOWLEDGED_TOGETHER) return;
    this.#acknowledged = applied;
    void this.#client.transcriptAcknowledge(subscription, applied).catch(ignore);
  }

  #applyRows(rows: Row[], changed: Row[]): Row[] {
    const first = rows[0];
    const last = rows.at(-1);
    const kept = changed.filter((row) => {
      const isNew = last === undefined || row.at > last.at;
      if (isNew && !this.#isFollowing) this.#unseen++;
      if (isNew) return !this.#isCut;
      return !this.#hasOlder || first === undefined || row.at >= first.at;
    });
    return put(rows, kept);
  }

  #trim(): void {
    if (this.#isFollowing) {
      if (this.#rows.length <= FOLLOWED) return;
      this.#rows = this.#rows.slice(-FOLLOWED);
      this.#hasOlder = true;
    } else if (this.#rows.length > READ) {
      this.#rows = this.#rows.slice(0, READ);
      this.#isCut = true;
    }
  }

  #release(): void {
    if (this.#subscription !== null) void this.#client.transcriptClose(this.#subscription).catch(ignore);
    this.#subscription = null;
  }
}

/** Adds rows or replaces those with the same `at`; the order by `at` holds. Never changes `rows` itself. */
export function put(rows: Row[], changed: Row[]): Row[] {
  if (changed.length === 0) return rows;
  const next = rows.slice();
  for (const row of changed) {
    const last = next.at(-1);
    if (last === undefined || row.at > last.at) {
      next.push(row);
      continue;
    }
    const index = position(next, row.at);
    if (next[index]?.at === row.at) next[index] = row;
    else next.splice(index, 0, row);
  }
  return next;
}

/** Adds text to the end of rows that hold text; a row that is not kept is passed over. */
export function append(rows: Row[], appends: Append[]): Row[] {
  if (appends.length === 0) return rows;
  const next = rows.slice();
  for (const { at, text } of appends) {
    const index = position(next, at);
    const row = next[index];
    if (row?.at !== at) continue;
    const { item } = row;
    if (item.kind === "text" || item.kind === "thinking" || item.kind === "output" || item.kind === "message") {
      next[index] = { ...row, item: { ...item, text: item.text + text } };
    }
  }
  return next;
}

/** Where `at` is or would be. */
function position(rows: Row[], at: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle]?.at ?? Infinity) < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** With the next picture; a hidden window draws none, so a timer sees to it that frames are still acknowledged. */
function onNextPicture(run: () => void): void {
  let isDone = false;
  const once = () => {
    if (isDone) return;
    isDone = true;
    run();
  };
  requestAnimationFrame(once);
  setTimeout(once, 250);
}

/** A subscription that is already gone needs no closing and no acknowledging. */
function ignore(): void {}
