/** OKLCH, the tokens' notation, to sRGB: for what cannot read CSS (the terminal) and for the test that computes contrast. */
export type Oklch = { lightness: number; chroma: number; hue: number };
export type LinearRgb = [number, number, number];

export function parseOklch(text: string): Oklch | null {
  const found = /oklch\(\s*([\d.]+)(%?)\s+([\d.]+)\s+([\d.]+)/.exec(text);
  if (found === null) return null;
  return { lightness: Number(found[1]) / (found[2] === "%" ? 100 : 1), chroma: Number(found[3]), hue: Number(found[4]) };
}

export function toLinear({ lightness, chroma, hue }: Oklch): LinearRgb {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

export function isInGamut(rgb: LinearRgb): boolean {
  return rgb.every((value) => value > -0.0005 && value < 1.0005);
}

export function toHex(rgb: LinearRgb): string {
  const channel = (value: number) => {
    const clamped = Math.min(1, Math.max(0, value));
    const encoded = clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * clamped ** (1 / 2.4) - 0.055;
    return Math.round(encoded * 255).toString(16).padStart(2, "0");
  };
  return `#${rgb.map(channel).join("")}`;
}

/** WCAG 2 contrast of two colours. */
export function contrast(one: LinearRgb, other: LinearRgb): number {
  const luminance = ([r, g, b]: LinearRgb) => {
    const clamp = (value: number) => Math.min(1, Math.max(0, value));
    return 0.2126 * clamp(r) + 0.7152 * clamp(g) + 0.0722 * clamp(b);
  };
  const [low, high] = [luminance(one), luminance(other)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}
