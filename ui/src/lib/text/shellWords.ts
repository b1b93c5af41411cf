/** One field for several arguments, written as in a shell: blanks part them, quotes and backslashes keep them together. */

/** The arguments; null where a quote is not closed. Nothing is expanded: there is no shell behind it. */
export function splitWords(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote: "'" | '"' | null = null;
  for (let at = 0; at < text.length; at++) {
    const sign = text[at] ?? "";
    const next = text[at + 1];
    if (quote !== null) {
      if (sign === quote) quote = null;
      else if (sign === "\\" && quote === '"' && (next === '"' || next === "\\")) {
        word = (word ?? "") + next;
        at++;
      } else word = (word ?? "") + sign;
    } else if (sign === "'" || sign === '"') {
      quote = sign;
      word ??= "";
    } else if (sign === "\\" && next !== undefined) {
      word = (word ?? "") + next;
      at++;
    } else if (/\s/.test(sign)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + sign;
  }
  if (quote !== null) return null;
  if (word !== null) words.push(word);
  return words;
}

/** The same arguments as a person would write them. */
export function joinWords(words: string[]): string {
  return words.map((word) => (/^[\w@%+=:,./~-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
