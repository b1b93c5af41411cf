/** A unified patch as lines with numbers, and the words that changed inside a replaced line. */
export type DiffLine = {
  kind: "context" | "added" | "removed" | "gap";
  before: number | null;
  after: number | null;
  text: string;
  /** The changed parts of `text`: from, to. */
  marks: [number, number][];
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
      if (lines.length > 0 || hunk[3]?.trim()) lines.push({ kind: "gap", before: null, after: null, text: (hunk[3] ?? "").trim(), marks: [] });
    } else if (line.startsWith("diff ") || (!isInHunk && HEADER.test(line))) {
      isInHunk = false;
    } else if (line.startsWith("\\")) {
      continue;
    } else if (line.startsWith("+")) {
      lines.push({ kind: "added", before: null, after: after++, text: line.slice(1), marks: [] });
    } else if (line.startsWith("-")) {
      lines.push({ kind: "removed", before: before++, after: null, text: line.slice(1), marks: [] });
    } else {
      lines.push({ kind: "context", before: before++, after: after++, text: line.slice(1), marks: [] });
    }
  }
  markWords(lines);
  return lines;
}

/** Where a block of removed lines meets added ones, the lines are compared in pairs. */
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

/** Longer lines are not compared: the table grows with their product. */
const MOST_TOKENS = 200;

function markPair(removed: DiffLine, added: DiffLine): void {
  const one = removed.text.match(/\w+|\s+|./gu) ?? [];
  const other = added.text.match(/\w+|\s+|./gu) ?? [];
  if (one.length > MOST_TOKENS || other.length > MOST_TOKENS) return;
  const width = other.length + 1;
  const common = new Uint16Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      common[i * width + j] = one[i] === other[j] ? 1 + (common[(i + 1) * width + j + 1] ?? 0) : Math.max(common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0);
    }
  }
  // Where little stays the same, marks would be everywhere and say nothing.
  if ((common[0] ?? 0) < 0.4 * Math.min(one.length, other.length)) return;
  let [i, j, from, to] = [0, 0, 0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      from += one[i++]?.length ?? 0;
      to += other[j++]?.length ?? 0;
    } else if (j >= other.length || (i < one.length && (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))) {
      from = extend(removed.marks, from, one[i++] ?? "");
    } else {
      to = extend(added.marks, to, other[j++] ?? "");
    }
  }
  removed.marks = joined(removed);
  added.marks = joined(added);
}

/** Marks with only a character or a space between them are read as one, and none ends in a space. */
function joined({ text, marks }: DiffLine): [number, number][] {
  const result: [number, number][] = [];
  for (const [start, end] of marks) {
    const last = result.at(-1);
    if (last !== undefined && (start - last[1] <= 1 || text.slice(last[1], start).trim() === "")) last[1] = end;
    else result.push([start, end]);
  }
  return result.map(([start, end]): [number, number] => [start, start + text.slice(start, end).trimEnd().length]).filter(([start, end]) => end > start);
}

function extend(marks: [number, number][], at: number, token: string): number {
  const last = marks.at(-1);
  if (last !== undefined && last[1] === at) last[1] = at + token.length;
  else marks.push([at, at + token.length]);
  return at + token.length;
}
