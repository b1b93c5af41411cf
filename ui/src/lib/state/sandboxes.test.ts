import { describe, expect, it, vi } from "vitest";
import type { Client } from "../ipc/client";
import { sandbox } from "../ipc/fake/data";
import type { Sandbox, SandboxQuery } from "../types";
import { group, SandboxList } from "./sandboxes.svelte";

const NOW = new Date(2026, 10, 29, 14, 0).getTime();
const HOUR = 3_600_000;

function listOf(...rows: Sandbox[]) {
  const sandboxList = vi.fn(async (query: SandboxQuery) => {
    const found = rows.filter((row) => query.statuses.includes(row.status));
    return { rows: found, next: null, total: found.length, revision: 1 };
  });
  return { list: new SandboxList({ sandboxList } as unknown as Client), sandboxList };
}

describe("the list of sandboxes", () => {
  it("groups by live, ended today and earlier, and leaves empty groups out", () => {
    const groups = group([
      sandbox("a", "A", { status: "paused" }),
      sandbox("b", "B", { status: "killed", endedAt: NOW - 2 * HOUR }),
      sandbox("c", "C", { status: "error", endedAt: NOW - HOUR }),
      sandbox("d", "D", { status: "killed", endedAt: NOW - 15 * HOUR }),
    ], NOW);
    expect(groups.map(({ kind, rows }) => [kind, rows.map(({ id }) => id)])).toEqual([["live", ["a"]], ["today", ["c", "b"]], ["earlier", ["d"]]]);
    expect(group([], NOW)).toEqual([]);
  });

  it("takes a newer change over and passes an older one by", async () => {
    const { list } = listOf(sandbox("a", "A", { revision: 5 }));
    await list.load();
    list.apply({ kind: "sandbox", revision: 4, sandbox: sandbox("a", "A", { revision: 4, status: "paused" }) });
    expect(list.find("a")?.status).toBe("running");
    list.apply({ kind: "sandbox", revision: 6, sandbox: sandbox("a", "A", { revision: 6, status: "killed" }) });
    expect(list.find("a")?.status).toBe("killed");
  });

  it("shows a new sandbox only where it belongs", async () => {
    const { list } = listOf();
    await list.show({ project: "p1", search: "retry" });
    const change = (made: Sandbox) => list.apply({ kind: "sandbox", revision: 2, sandbox: made });
    change(sandbox("a", "Retry requests"));
    change(sandbox("b", "Retry requests", { project: "p2" }));
    change(sandbox("c", "Something else"));
    expect(list.rows.map(({ id }) => id)).toEqual(["a"]);
    change(sandbox("a", "Retry requests", { isDeleted: true, revision: 2 }));
    expect(list.rows).toEqual([]);
  });

  it("asks for live and ended ones apart, narrowed by the chosen statuses", async () => {
    const { list, sandboxList } = listOf();
    await list.show({ statuses: ["paused", "error"] });
    expect(sandboxList.mock.calls.map(([query]) => query.statuses)).toEqual([["paused"], ["error"]]);
  });
});
