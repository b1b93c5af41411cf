/** A unified patch as lines with numbers, and the words that changed inside a replaced line. */
export type DiffLine = {
  kind: "context" | "added" | "removed" | "gap";
  before: number | null;
  after: number | null;
  text: string;
  /** Of a gap: the unchanged lines it stands for, by the numbers of the first. */
  hidden?: { count: number; before: number; after: number };
  /** The changed parts of `text`: from, to. */
  marks: [number, number][];
};

const HEADER = /^(---|\+\+\+|index |new file|deleted file|old mode|new mode|similarity|rename )/;

export function parsePatch(patch: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let before = 1;
  let after = 1;
  let isInHunk = false;
  let isFirst = true;
  for (const line of patch.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/.exec(line);
    if (hunk !== null) {
      const count = Math.max(0, Number(hunk[2]) - after);
      if (!isFirst || hunk[3]?.trim()) lines.push({ kind: "gap", before: null, after: null, text: (hunk[3] ?? "").trim(), hidden: { count, before, after }, marks: [] });
      isInHunk = true;
      isFirst = false;
      before = Number(hunk[1]);
      after = Number(hunk[2]);
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
  if (!isAlike(one, other, common, width)) return;
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

/** How much of the shorter line, spaces aside, has to stay for the rest to be worth marking. */
const LEAST_COMMON = 0.25;

/** Where little stays the same, marks would be everywhere and say nothing. */
function isAlike(one: string[], other: string[], common: Uint16Array, width: number): boolean {
  const written = (tokens: string[]) => tokens.reduce((sum, token) => sum + token.trim().length, 0);
  let same = 0;
  let [i, j] = [0, 0];
  while (i < one.length && j < other.length) {
    if (one[i] === other[j]) {
      same += (one[i++] ?? "").trim().length;
      j++;
    } else if ((common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0)) i++;
    else j++;
  }
  return same > 0 && same >= LEAST_COMMON * Math.min(written(one), written(other));
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

/** Opens a gap: the unchanged lines it stands for, taken from the whole text after the change. */
export function fillGap(lines: DiffLine[], gap: DiffLine, text: string[]): DiffLine[] {
  const { hidden } = gap;
  if (hidden === undefined || hidden.count === 0) return lines;
  const filled = Array.from({ length: hidden.count }, (_, index): DiffLine => ({ kind: "context", before: hidden.before + index, after: hidden.after + index, text: text[hidden.after + index - 1] ?? "", marks: [] }));
  return lines.flatMap((line) => (line === gap ? filled : [line]));
}

/** One row of the side-by-side view: what was, and what is. A gap goes over both. */
export type SideRow = { kind: "gap"; gap: DiffLine } | { kind: "pair"; before: DiffLine | null; after: DiffLine | null };

/** Removed and added lines of one block stand beside each other, as far as both go. */
export function sideBySide(lines: DiffLine[]): SideRow[] {
  const rows: SideRow[] = [];
  let i = 0;
  while (i < lines.length) {
    const line = lines[i];
    if (line === undefined) break;
    if (line.kind === "gap") rows.push({ kind: "gap", gap: line });
    else if (line.kind === "context") rows.push({ kind: "pair", before: line, after: line });
    if (line.kind === "gap" || line.kind === "context") {
      i++;
      continue;
    }
    const removed: DiffLine[] = [];
    const added: DiffLine[] = [];
    for (let next = lines[i]; next?.kind === "removed"; next = lines[++i]) removed.push(next);
    for (let next = lines[i]; next?.kind === "added"; next = lines[++i]) added.push(next);
    for (let at = 0; at < Math.max(removed.length, added.length); at++) rows.push({ kind: "pair", before: removed[at] ?? null, after: added[at] ?? null });
  }
  return rows;
}

/** A line cut into what stayed and what changed; the end of one that is too long to read is left out. */
export function cutLine({ text, marks }: DiffLine, most = Infinity): { text: string; isMarked: boolean }[] {
  const cut: { text: string; isMarked: boolean }[] = [];
  let from = 0;
  for (const [start, end] of marks) {
    if (start >= most) break;
    cut.push({ text: text.slice(from, start), isMarked: false }, { text: text.slice(start, Math.min(end, most)), isMarked: true });
    from = Math.min(end, most);
  }
  cut.push({ text: text.slice(from, most), isMarked: false });
  return cut;
}
