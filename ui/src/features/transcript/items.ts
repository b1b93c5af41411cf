/** From rows as the engine keeps them to what the conversation shows: turns begin with a line, runs of the same kind fold. */
import type { Item, Row, ToolKind } from "../../lib/types";

export type ToolRow = Row & { item: Extract<Item, { kind: "tool" }> };
/** `gap`: the space above, in pixels: dense between rows of tools, wider between paragraphs. */
export type Shown = { gap: number } & (
  | { key: string; kind: "turn"; turn: number; time: number }
  | { key: string; kind: "row"; row: Row; isJoinedBefore: boolean; isJoinedAfter: boolean }
  | { key: string; kind: "fold"; rows: ToolRow[] }
  | { key: string; kind: "older" }
  | { key: string; kind: "cut" }
);

/** Reading is of interest only in sum; an edit or a command is looked at by itself. */
const FOLDS: ToolKind[] = ["read", "search", "web"];

export function toShown(rows: Row[], hasOlder: boolean, isCut: boolean): Shown[] {
  const shown: Shown[] = [];
  if (hasOlder) shown.push({ key: "older", kind: "older", gap: 0 });
  let turn = -1;
  let above: Look = "edge";
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i];
    if (row === undefined) break;
    if (row.turn !== turn) {
      // The window may begin in the middle of a turn: its line then stands where the turn itself begins, further up.
      if (i > 0 || !hasOlder) {
        shown.push({ key: `turn-${row.turn}`, kind: "turn", turn: row.turn, time: row.time, gap: 0 });
        above = "edge";
      }
      turn = row.turn;
    }
    const gap = gapBetween(above, lookOf(row.item));
    above = lookOf(row.item);
    const fold = foldFrom(rows, i);
    if (fold.length > 1) {
      shown.push({ key: `fold-${row.at}`, kind: "fold", rows: fold, gap });
      i += fold.length - 1;
    } else {
      shown.push(shownAs(row, joins(rows[i - 1], row), joins(row, rows[i + 1]), gap));
    }
  }
  if (isCut) shown.push({ key: "cut", kind: "cut", gap: 8 });
  return shown;
}

type ShownRow = Extract<Shown, { kind: "row" }>;

/** A row that is shown as it was before is the same object: whoever draws it has nothing to do. */
const known = new WeakMap<Row, ShownRow>();

function shownAs(row: Row, isJoinedBefore: boolean, isJoinedAfter: boolean, gap: number): ShownRow {
  let shown = known.get(row);
  if (shown?.isJoinedBefore !== isJoinedBefore || shown.isJoinedAfter !== isJoinedAfter || shown.gap !== gap) {
    shown = { key: `row-${row.at}`, kind: "row", row, isJoinedBefore, isJoinedAfter, gap };
    known.set(row, shown);
  }
  return shown;
}

/** Lines of 28 px stand close; output joins output; everything else is a block. */
type Look = "edge" | "line" | "output" | "block";

function lookOf(item: Item): Look {
  if (item.kind === "output") return "output";
  return item.kind === "tool" || item.kind === "thinking" || item.kind === "notice" || item.kind === "unknown" ? "line" : "block";
}

function gapBetween(above: Look, below: Look): number {
  if (above === "edge" || (above === below && above !== "block")) return 0;
  return above === "line" || below === "line" ? 8 : 12;
}

export function isTool(row: Row | undefined): row is ToolRow {
  return row?.item.kind === "tool";
}

function foldFrom(rows: Row[], index: number): ToolRow[] {
  const first = rows[index];
  if (!isTool(first) || !FOLDS.includes(first.item.tool)) return [];
  const fold: ToolRow[] = [];
  for (let i = index; i < rows.length; i++) {
    const row = rows[i];
    if (!isTool(row) || row.item.tool !== first.item.tool || row.turn !== first.turn || row.item.state === "failed") break;
    fold.push(row);
  }
  return fold;
}

/** Output that follows output is one block; whether it came as an error only colours it. */
function joins(one: Row | undefined, other: Row | undefined): boolean {
  return one !== undefined && other !== undefined && one.turn === other.turn && one.item.kind === "output" && other.item.kind === "output";
}

/** Lines of the code font, exactly where none is longer than the column. */
function lines(text: string): number {
  const shown = text.slice(-20_000);
  let count = shown.endsWith("\n") ? 0 : 1;
  for (let at = shown.indexOf("\n"); at >= 0; at = shown.indexOf("\n", at + 1)) count++;
  return Math.max(1, count);
}

/** A first guess of a row's height, so that the scrollbar is about right before it was ever drawn. */
export function estimateHeight(shown: Shown): number {
  if (shown.kind === "turn") return 40;
  if (shown.kind !== "row") return 28 + shown.gap;
  let height = guessed.get(shown.row);
  if (height === undefined) guessed.set(shown.row, (height = guess(shown.row.item)));
  return height + shown.gap;
}

/** A row that changes is another object, so its guess is made anew. */
const guessed = new WeakMap<Row, number>();

function guess(item: Item): number {
  switch (item.kind) {
    case "message":
    case "text":
      return 36 + 20 * Math.ceil(Math.min(item.text.length, 20_000) / 72);
    case "output":
      return 19 * lines(item.text);
    case "error":
      return 68;
    case "progress":
      return 12 + 24 * item.entries.length;
    default:
      return 28;
  }
}
