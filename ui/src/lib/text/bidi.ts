/**
 * Characters that reorder, hide or imitate nothing at all can make a command read as another one. What an agent prints is
 * hostile, and so is what a repository names its branches, so they are shown as what they are: ⟦RLO⟧ instead of the reordering,
 * ⟦ZWSP⟧ instead of nothing, ⟦ESC⟧ instead of an escape. Joiners stay where writing needs them: inside an emoji, and between
 * letters of scripts that join.
 */
const NAMES: Record<string, string> = {
  "\u007f": "DEL", "\u00ad": "SHY", "\u034f": "CGJ", "\u061c": "ALM", "\u115f": "HF", "\u1160": "HF", "\u17b4": "KIV", "\u17b5": "KIV", "\u180e": "MVS",
  "\u200b": "ZWSP", "\u200c": "ZWNJ", "\u200d": "ZWJ", "\u200e": "LRM", "\u200f": "RLM", "\u2028": "LS", "\u2029": "PS",
  "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO", "\u2060": "WJ",
  "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI", "\u3164": "HF", "\ufeff": "BOM", "\uffa0": "HF",
};
const CONTROLS = ["NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI", "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"];
/** Everything that may have to be shown; a quick look at most texts finds none. */
// eslint-disable-next-line no-control-regex, no-misleading-character-class -- control characters and joiners are what is looked for.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]+/gu;
const JOINING_BEFORE = /[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mongolian}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}\p{Script=Khmer}\p{Script=Myanmar}\p{M}]$/u;
const JOINED_AFTER = /^[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mongolian}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const EMOJI_BEFORE = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]$/u;
const EMOJI_AFTER = /^\p{Extended_Pictographic}/u;
/** A flag of a region: a black flag, some letters nobody sees, their end. */
const REGION = /^[\u{e0030}-\u{e007a}]{2,6}\u{e007f}$/u;

export function showBidi(text: string): string {
  return text.replace(HIDDEN, (run, at: number) => shown(run, text.slice(Math.max(0, at - 2), at), text.slice(at + run.length, at + run.length + 2)));
}

function shown(run: string, before: string, after: string): string {
  if (run === "\r") return after.startsWith("\n") || after === "" ? "" : "⟦CR⟧";
  // One that chooses how the character before it looks.
  if (/^[\ufe00-\ufe0f]$/u.test(run) && /\S$/u.test(before)) return run;
  if (/^\ufe0f?\u200d$/u.test(run) && EMOJI_BEFORE.test(before) && EMOJI_AFTER.test(after)) return run;
  if ((run === "\u200c" || run === "\u200d") && JOINING_BEFORE.test(before) && JOINED_AFTER.test(after)) return run;
  if (before === "\u{1f3f4}" && REGION.test(run)) return run;
  return Array.from(run, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `⟦${CONTROLS[code] ?? NAMES[character] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`}⟧`;
  }).join("");
}
