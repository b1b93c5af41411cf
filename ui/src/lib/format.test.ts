import { describe, expect, it } from "vitest";
import { age, ago, bytes, count, duration, elapsed, exact, left, shortCount } from "./format";

const NOW = new Date(2026, 10, 29, 14, 47, 0).getTime();
const MINUTE = 60_000;

describe("times and numbers", () => {
  it("are relative under a day and a date after", () => {
    expect(age(NOW - 30_000, NOW)).toBe("now");
    expect(age(NOW - 14 * MINUTE, NOW)).toBe("14 min");
    expect(age(NOW - 90 * MINUTE, NOW)).toBe("1 h");
    expect(age(NOW - 25 * 60 * MINUTE, NOW)).toBe("28 Nov");
    expect(ago(NOW - 3_000, NOW)).toBe("just now");
    expect(ago(NOW - 61_000, NOW)).toBe("1 min ago");
    expect(exact(NOW)).toBe("29 November 2026, 14:47:00");
  });

  it("say how long something took with as many digits as mean something", () => {
    expect([400, 9_940, 38_200, 72_000, 252_000, 7_500_000, 0, -5].map(duration)).toEqual(["0.4 s", "9.9 s", "38 s", "1 min 12 s", "4 min 12 s", "2 h 5 min", "0.0 s", "0.0 s"]);
    expect(elapsed(8_400)).toBe("8 s");
    expect(elapsed(72_000)).toBe("1 min 12 s");
  });

  it("count down only below two minutes", () => {
    expect([12.6 * MINUTE, 2 * MINUTE, 119_000, 9_000, -4_000, 100 * MINUTE, 120 * MINUTE].map(left)).toEqual(["12 min", "2 min", "1:59", "0:09", "0:00", "1 h 40 min", "2 h"]);
  });

  it("group digits", () => {
    expect(count(512_904)).toBe("512,904");
    expect([412, 9_204, 11_870, 118_300].map(shortCount)).toEqual(["412", "9.2k", "12k", "118k"]);
  });

  it("say what something occupies", () => {
    expect([0, 312, 1_024, 41 * 1_024, 1_500 * 1_048_576].map(bytes)).toEqual(["0 B", "312 B", "1.0 KB", "41 KB", "1.5 GB"]);
  });
});
