/** Changed files as the rows of a tree: folders with only one folder in them are one row, folders come before files. */
import type { ChangedFile } from "../types";

export type TreeRow =
  | { key: string; kind: "folder"; name: string; depth: number; isOpen: boolean; files: number; added: number; removed: number }
  | { key: string; kind: "file"; name: string; depth: number; file: ChangedFile };

type Folder = { path: string; folders: Map<string, Folder>; files: ChangedFile[] };

const folder = (path: string): Folder => ({ path, folders: new Map(), files: [] });

/** `closed`: the folders a person has folded, by path. */
export function toTree(files: ChangedFile[], closed: ReadonlySet<string>): TreeRow[] {
  const root = folder("");
  for (const file of files) {
    const parts = file.path.split("/");
    let at = root;
    for (const part of parts.slice(0, -1)) {
      let next = at.folders.get(part);
      if (next === undefined) at.folders.set(part, (next = folder(at.path === "" ? part : `${at.path}/${part}`)));
      at = next;
    }
    at.files.push(file);
  }
  const rows: TreeRow[] = [];
  add(rows, root, 0, closed);
  return rows;
}

function add(rows: TreeRow[], at: Folder, depth: number, closed: ReadonlySet<string>): void {
  const folders = [...at.folders].map(([name, inner]) => joined(name, inner)).sort((one, other) => order(one.name, other.name));
  for (const { name, inner } of folders) {
    const all = everything(inner);
    const isOpen = !closed.has(inner.path);
    rows.push({ key: `${inner.path}/`, kind: "folder", name, depth, isOpen, files: all.length, added: total(all, "added"), removed: total(all, "removed") });
    if (isOpen) add(rows, inner, depth + 1, closed);
  }
  for (const file of [...at.files].sort((one, other) => order(one.path, other.path))) rows.push({ key: file.path, kind: "file", name: file.path.slice(at.path === "" ? 0 : at.path.length + 1), depth, file });
}

/** `src` that holds nothing but `http` is `src/http`. */
function joined(name: string, inner: Folder): { name: string; inner: Folder } {
  const only = inner.files.length === 0 && inner.folders.size === 1 ? [...inner.folders][0] : undefined;
  return only === undefined ? { name, inner } : joined(`${name}/${only[0]}`, only[1]);
}

function everything(at: Folder): ChangedFile[] {
  return [...at.files, ...[...at.folders.values()].flatMap(everything)];
}

const total = (files: ChangedFile[], side: "added" | "removed") => files.reduce((sum, file) => sum + file[side], 0);
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const order = (one: string, other: string) => collator.compare(one, other);

/** The files in the order in which the tree, with nothing folded, names them. */
export function inTreeOrder(files: ChangedFile[]): ChangedFile[] {
  return toTree(files, new Set()).flatMap((row) => (row.kind === "file" ? [row.file] : []));
}

/** Every typed word must occur in the path, or in the path it had before. */
export function matching(files: ChangedFile[], typed: string): ChangedFile[] {
  const words = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return files;
  return files.filter(({ path, oldPath }) => {
    const text = `${path} ${oldPath ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
