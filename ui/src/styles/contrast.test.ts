import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { contrast, isInGamut, parseOklch, toLinear, type LinearRgb } from "../lib/colour";

const css = readFileSync("src/styles/tokens.css", "utf8").replace(/\/\*[\s\S]*?\*\//g, "");

function theme(name: string): Map<string, LinearRgb> {
  const body = new RegExp(`\\[data-theme="${name}"\\] \\{([\\s\\S]*?)\\n\\}`).exec(css)?.[1] ?? "";
  const colours = new Map<string, LinearRgb>();
  for (const [, token, value] of body.matchAll(/--([\w-]+):\s*(oklch\([^/)]*\))/g)) {
    const colour = parseOklch(value ?? "");
    if (token !== undefined && colour !== null) colours.set(token, toLinear(colour));
  }
  return colours;
}

const surfaces = ["surface-0", "surface-1", "surface-2", "surface-3", "surface-selected"];
const text = ["text", "text-muted", "text-faint", "accent", "ok", "warn", "danger", "idle"];
const washes = ["accent", "ok", "warn", "danger"];
const ansi = ["red", "green", "yellow", "blue", "magenta", "cyan", "white", "black"].map((colour) => `ansi-${colour}`);
/** Every pair that may meet, and the least contrast it must have. */
const pairs: [string, string, number][] = [
  ...text.flatMap((front) => surfaces.map((back): [string, string, number] => [front, back, 4.5])),
  ...washes.flatMap((wash) => ["text", "text-muted", "text-faint", wash].map((front): [string, string, number] => [front, `${wash}-wash`, 4.5])),
  ...["ok", "danger"].map((mark): [string, string, number] => ["text", `${mark}-mark`, 4.5]),
  ...["accent", "accent-hover"].map((back): [string, string, number] => ["on-accent", back, 4.5]),
  ...ansi.flatMap((front) => ["surface-0", "surface-1"].map((back): [string, string, number] => [front, back, 4.5])),
  ...["accent", "ok", "warn", "danger", "idle", "text-faint"].flatMap((front) => [...surfaces, ...washes.map((wash) => `${wash}-wash`)].map((back): [string, string, number] => [front, back, 3])),
];

describe.each(["dark", "light"])("the %s theme", (name) => {
  const colours = theme(name);

  it("lies inside sRGB", () => {
    expect(colours.size).toBeGreaterThan(30);
    expect([...colours].filter(([, rgb]) => !isInGamut(rgb)).map(([token]) => token)).toEqual([]);
  });

  it("has enough contrast wherever two colours meet", () => {
    const low = pairs.flatMap(([front, back, floor]) => {
      const [one, other] = [colours.get(front), colours.get(back)];
      const value = one === undefined || other === undefined ? 0 : contrast(one, other);
      return value < floor ? [`${front} on ${back}: ${value.toFixed(2)}`] : [];
    });
    expect(low).toEqual([]);
  });
});
