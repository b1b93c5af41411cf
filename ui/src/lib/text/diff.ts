/** A unified patch as lines with numbers, and the words that changed inside a replaced line. */
export type DiffLine = {
  kind: "context" | "added" | "removed" | "gap";
  before: number | null;
  after: number | null;
  text: string;
  /** The changed part of `text`: from, to. */
  mark: [number, number] | null;
};

const HEADER = /^(---|\+\+\+|index |new file|deleted file|old mode|new mode|similarity|rename )/;

export function parsePatch(patch: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let before = 1;
  let after = 1;
  let isInHunk = false;
  for (const line of patch.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/.exec(line);
    if (hunk !== null) {
      isInHunk = true;
      before = Number(hunk[1]);
      after = Number(hunk[2]);
      if (lines.length > 0 || hunk[3]?.trim()) lines.push({ kind: "gap", before: null, after: null, text: (hunk[3] ?? "").trim(), mark: null });
    } else if (line.startsWith("diff ") || (!isInHunk && HEADER.test(line))) {
      isInHunk = false;
    } else if (line.startsWith("\\")) {
      continue;
    } else if (line.startsWith("+")) {
      lines.push({ kind: "added", before: null, after: after++, text: line.slice(1), mark: null });
    } else if (line.startsWith("-")) {
      lines.push({ kind: "removed", before: before++, after: null, text: line.slice(1), mark: null });
    } else {
      lines.push({ kind: "context", before: before++, after: after++, text: line.slice(1), mark: null });
    }
  }
  markWords(lines);
  return lines;
}

/** Where a block of removed lines meets added ones, the lines are compared in pairs; marks help only while most of the line stays. */
function markWords(lines: DiffLine[]): void {
  let i = 0;
  while (i < lines.length) {
    if (lines[i]?.kind !== "removed") {
      i++;
      continue;
    }
    const removedFrom = i;
    while (lines[i]?.kind === "removed") i++;
    const addedFrom = i;
    while (lines[i]?.kind === "added") i++;
    const pairs = Math.min(addedFrom - removedFrom, i - addedFrom);
    for (let pair = 0; pair < pairs; pair++) {
      const removed = lines[removedFrom + pair];
      const added = lines[addedFrom + pair];
      if (removed !== undefined && added !== undefined) markPair(removed, added);
    }
  }
}

function markPair(removed: DiffLine, added: DiffLine): void {
  const [one, other] = [removed.text, added.text];
  const shortest = Math.min(one.length, other.length);
  let start = 0;
  while (start < shortest && one[start] === other[start]) start++;
  let end = 0;
  while (end < shortest - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  const kept = start + end;
  if (kept - (/^\s*/.exec(one)?.[0].length ?? 0) < shortest * 0.3) return;
  if (one.length - end > start) removed.mark = [start, one.length - end];
  if (other.length - end > start) added.mark = [start, other.length - end];
}
