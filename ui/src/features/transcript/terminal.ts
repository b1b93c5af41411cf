/** What the raw terminal may and may not do, and how its colours come from the tokens. */
import type { ITheme, Terminal } from "@xterm/xterm";
import { parseOklch, toHex, toLinear } from "../../lib/colour";

/** Titles (0, 1, 2), colours of the window (4, 10 to 12, 104, 110 to 112), links (8) and the clipboard (52): an agent's output must reach none of them. */
const DROPPED = [0, 1, 2, 4, 8, 10, 11, 12, 52, 104, 110, 111, 112];
/** Sequences that repeat, insert, delete, scroll or step as often as their number says. */
const COUNTED = ["@", "I", "L", "M", "P", "S", "T", "X", "Z", "b"];
/** No screen has more lines or columns; the terminal would count to two thousand millions while nothing else is drawn. */
const MOST = 1_000;
/** What would send the person's mouse, focus and pasting to the agent instead of selecting text. */
const MODES = [9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004];

export function silence(terminal: Pick<Terminal, "parser">): void {
  const { parser } = terminal;
  for (const code of DROPPED) parser.registerOscHandler(code, () => true);
  const isTooOften = (params: (number | number[])[]) => params.some((param) => typeof param === "number" && param > MOST);
  for (const final of COUNTED) parser.registerCsiHandler({ final }, isTooOften);
  for (const [intermediates, finals] of [[" ", ["@", "A"]], ["'", ["}", "~"]]] as const) for (const final of finals) parser.registerCsiHandler({ intermediates, final }, isTooOften);
  parser.registerCsiHandler({ prefix: "?", final: "h" }, (params) => params.some((param) => typeof param === "number" && MODES.includes(param)));
}

export function terminalTheme(): ITheme {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => {
    const colour = parseOklch(style.getPropertyValue(`--${name}`));
    return colour === null ? undefined : toHex(toLinear(colour));
  };
  const ansi = { red: token("ansi-red"), green: token("ansi-green"), yellow: token("ansi-yellow"), blue: token("ansi-blue"), magenta: token("ansi-magenta"), cyan: token("ansi-cyan"), white: token("ansi-white"), black: token("ansi-black") };
  return {
    background: token("surface-0"), foreground: token("text"), cursor: token("surface-0"), cursorAccent: token("surface-0"), selectionBackground: token("surface-selected"),
    ...ansi,
    brightRed: ansi.red, brightGreen: ansi.green, brightYellow: ansi.yellow, brightBlue: ansi.blue, brightMagenta: ansi.magenta, brightCyan: ansi.cyan, brightWhite: ansi.white, brightBlack: ansi.black,
  };
}

export function decodeBase64(text: string): Uint8Array {
  const binary = atob(text);
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
