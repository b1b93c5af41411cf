import { describe, expect, it } from "vitest";
import type { ChangedFile } from "../types";
import { inTreeOrder, matching, toTree } from "./tree";

const file = (path: string, oldPath: string | null = null): ChangedFile => ({ path, oldPath, kind: "modified", added: 2, removed: 1, isBinary: false, sizeBefore: 1, sizeAfter: 1, isLfs: false, isSubmodule: false });
const drawn = (files: ChangedFile[], closed: string[] = []) => toTree(files, new Set(closed)).map((row) => `${"  ".repeat(row.depth)}${row.name}${row.kind === "folder" ? "/" : ""}`);

describe("the tree of changed files", () => {
  it("joins folders that hold nothing but one folder, and puts folders first", () => {
    expect(drawn([file("README.md"), file("src/http/fetch.ts"), file("src/http/a2.ts"), file("src/http/a10.ts"), file("docker/Dockerfile")])).toEqual(["docker/", "  Dockerfile", "src/http/", "  a2.ts", "  a10.ts", "  fetch.ts", "README.md"]);
    expect(drawn([file("a/b/one"), file("a/c/two"), file("a/three")])).toEqual(["a/", "  b/", "    one", "  c/", "    two", "  three"]);
  });

  it("hides what is in a folded folder and sums it up", () => {
    const files = [file("src/http/fetch.ts"), file("src/http/send.ts"), file("top")];
    expect(drawn(files, ["src/http"])).toEqual(["src/http/", "top"]);
    expect(toTree(files, new Set(["src/http"]))[0]).toMatchObject({ isOpen: false, files: 2, added: 4, removed: 2 });
  });

  it("lists the files in the order it draws them, and finds them by every word of either path", () => {
    const files = [file("z"), file("b/new.ts", "a/old.ts"), file("a/x")];
    expect(inTreeOrder(files).map(({ path }) => path)).toEqual(["a/x", "b/new.ts", "z"]);
    expect(matching(files, " OLD ts ").map(({ path }) => path)).toEqual(["b/new.ts"]);
    expect(matching(files, "").length).toBe(3);
  });

  it("takes names as they are: a folder may be called like a property of objects", () => {
    expect(drawn([file("__proto__/constructor"), file("a//b")])).toEqual(["__proto__/", "  constructor", "a//", "  b"]);
  });

  it("draws 2,000 files from 300 folders, each once", () => {
    const files = Array.from({ length: 2_000 }, (_, index) => file(`packages/p${index % 300}/src/f${index}.ts`));
    expect(toTree(files, new Set()).filter((row) => row.kind === "file").length).toBe(2_000);
    expect(new Set(toTree(files, new Set()).map(({ key }) => key)).size).toBe(toTree(files, new Set()).length);
  });
});
