/**
 * Terminal output as runs of text with a look. Only colours and weights (SGR) are understood; every other escape sequence is
 * dropped: cursor movements, titles, links and the clipboard have no place in a transcript.
 */
import { showBidi } from "./bidi";

export type AnsiColour = "red" | "green" | "yellow" | "blue" | "magenta" | "cyan" | "white" | "black";
/** `colour` is a token's name, or "r, g, b" of a 256-colour or true-colour code. */
export type Run = { text: string; colour: AnsiColour | null; rgb: string | null; isBold: boolean; isDim: boolean; isItalic: boolean; isUnderlined: boolean };
type Look = Omit<Run, "text">;

const PLAIN: Look = { colour: null, rgb: null, isBold: false, isDim: false, isItalic: false, isUnderlined: false };
const COLOURS: AnsiColour[] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/* CSI … final, OSC … (BEL or ST), DCS/PM/APC/SOS … ST, charset selections and two-byte escapes, each possibly cut off at the end. */
// eslint-disable-next-line no-control-regex -- escape sequences are control characters.
const ESCAPE = /(?:\u001b\[|\u009b)([0-9;:?<=>!]*)[ -/]*([@-~]|$)|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|\u001b[PX^_][^\u001b]*(?:\u001b\\|$)|\u001b[ -/]*(?:[0-~]|$)/g;
// eslint-disable-next-line no-control-regex -- what is left of them is not text.
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

export function parseAnsi(text: string): Run[] {
  const runs: Run[] = [];
  let look = PLAIN;
  let from = 0;
  const push = (part: string) => {
    const clean = showBidi(overwrite(part).replace(CONTROL, ""));
    if (clean !== "") runs.push({ text: clean, ...look });
  };
  for (const found of text.matchAll(ESCAPE)) {
    push(text.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] === "m") look = select(look, found[1] ?? "");
  }
  push(text.slice(from));
  return runs;
}

/** The same without looks: for copying and for measuring. */
export function stripAnsi(text: string): string {
  return parseAnsi(text).map((run) => run.text).join("");
}

/** A carriage return writes the line anew, as progress bars do; only its last state is read. */
function overwrite(text: string): string {
  if (!text.includes("\r")) return text;
  return text
    .replace(/\r+\n/g, "\n")
    .split("\n")
    .map((line) => {
      const states = line.split("\r");
      return states.findLast((state) => state !== "") ?? "";
    })
    .join("\n");
}

function select(look: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next = look;
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) next = PLAIN;
    else if (code === 1) next = { ...next, isBold: true };
    else if (code === 2) next = { ...next, isDim: true };
    else if (code === 3) next = { ...next, isItalic: true };
    else if (code === 4) next = { ...next, isUnderlined: true };
    else if (code === 22) next = { ...next, isBold: false, isDim: false };
    else if (code === 23) next = { ...next, isItalic: false };
    else if (code === 24) next = { ...next, isUnderlined: false };
    else if (code >= 30 && code <= 37) next = { ...next, colour: COLOURS[code - 30] ?? null, rgb: null };
    else if (code >= 90 && code <= 97) next = { ...next, colour: COLOURS[code - 90] ?? null, rgb: null };
    else if (code === 39) next = { ...next, colour: null, rgb: null };
    else if (code === 38 || code === 48) {
      const isIndexed = codes[i + 1] === 5;
      if (code === 38) next = isIndexed ? indexed(next, codes[i + 2] ?? 7) : { ...next, colour: null, rgb: codes.slice(i + 2, i + 5).join(", ") };
      i += isIndexed ? 2 : 4;
    }
  }
  return next;
}

function indexed(look: Look, index: number): Look {
  if (index < 16) return { ...look, colour: COLOURS[index % 8] ?? null, rgb: null };
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return { ...look, colour: null, rgb: `${grey}, ${grey}, ${grey}` };
  }
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return { ...look, colour: null, rgb: [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level).join(", ") };
}
