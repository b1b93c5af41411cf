/** What the raw terminal may and may not do, and how its colours come from the tokens. */
import type { ITheme, Terminal } from "@xterm/xterm";
import { parseOklch, toHex, toLinear } from "../../lib/colour";

/** Titles (0, 1, 2), links (8) and the clipboard (52): an agent's output must reach none of them. */
const DROPPED = [0, 1, 2, 8, 52];

export function silence(terminal: Pick<Terminal, "parser">): void {
  for (const code of DROPPED) terminal.parser.registerOscHandler(code, () => true);
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
