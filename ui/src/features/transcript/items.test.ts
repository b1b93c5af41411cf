import { describe, expect, it } from "vitest";
import { tool } from "../../lib/ipc/fake/conversation";
import type { Item, Row } from "../../lib/types";
import { toShown } from "./items";

const rows = (...items: [turn: number, item: Item][]): Row[] => items.map(([turn, item], at) => ({ at: at + 1, turn, time: 0, item }));
const text: Item = { kind: "text", text: "x" };
const read = (summary: string) => tool({ tool: "read", summary });

describe("the conversation's rows", () => {
  it("begin each turn with a line, but not where the window begins inside one", () => {
    const of = rows([3, text], [3, text], [4, text]);
    expect(toShown(of, false, false).map(({ kind }) => kind)).toEqual(["turn", "row", "row", "turn", "row"]);
    expect(toShown(of, true, true).map(({ kind }) => kind)).toEqual(["older", "row", "row", "turn", "row", "cut"]);
  });

  it("fold runs of reading, never edits, commands or what failed", () => {
    const shown = toShown(rows([1, read("a")], [1, read("b")], [1, text], [1, read("c")], [1, tool({ tool: "command", summary: "ls" })], [1, tool({ tool: "command", summary: "ls" })], [1, read("d")], [1, tool({ tool: "read", summary: "e", state: "failed" })]), true, false);
    expect(shown.map(({ kind }) => kind)).toEqual(["older", "fold", "row", "row", "row", "row", "row", "row"]);
  });

  it("join output to output of the same turn", () => {
    const output: Item = { kind: "output", text: "x", isStderr: false };
    const shown = toShown(rows([1, output], [1, output], [2, output]), true, false).filter((item) => item.kind === "row");
    expect(shown.map(({ isJoinedBefore, isJoinedAfter }) => [isJoinedBefore, isJoinedAfter])).toEqual([[false, true], [true, false], [false, false]]);
  });
});
