/**
 * Characters that reorder or hide text can make a command read as another one. What an agent prints is hostile, so they are
 * shown as what they are: ⟦RLO⟧ instead of the reordering.
 */
const NAMES: Record<string, string> = {
  "\u061c": "ALM", "\u200e": "LRM", "\u200f": "RLM", "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF",
  "\u202d": "LRO", "\u202e": "RLO", "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI",
};
const HIDDEN = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function showBidi(text: string): string {
  return text.replace(HIDDEN, (character) => `⟦${NAMES[character] ?? "?"}⟧`);
}
