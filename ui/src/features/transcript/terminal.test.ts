import { describe, expect, it } from "vitest";
import { silence } from "./terminal";

type Params = (number | number[])[];

/** Hears what is registered; the newest handler is asked first, as the terminal does. */
function silenced() {
  const osc = new Set<number>();
  const csi = new Map<string, (params: Params) => boolean | Promise<boolean>>();
  const nothing = { dispose: () => undefined };
  silence({
    parser: {
      registerOscHandler: (code, handle) => {
        if (handle("anything") === true) osc.add(code);
        return nothing;
      },
      registerCsiHandler: ({ prefix = "", intermediates = "", final }, handle) => {
        csi.set(prefix + intermediates + final, handle);
        return nothing;
      },
      registerDcsHandler: () => nothing,
      registerEscHandler: () => nothing,
    },
  });
  return { osc, isDropped: (sequence: string, ...params: Params) => csi.get(sequence)?.(params) === true };
}

describe("the raw terminal", () => {
  it("hears neither titles, colours of the window, links nor the clipboard", () => {
    expect([...silenced().osc].sort((one, other) => one - other)).toEqual([0, 1, 2, 4, 8, 10, 11, 12, 52, 104, 110, 111, 112]);
  });

  it("counts no further than a screen is large", () => {
    const { isDropped } = silenced();
    expect(["b", "L", "S", "@", " @", "'}"].map((sequence) => isDropped(sequence, 2_147_483_647))).toEqual(Array(6).fill(true));
    expect(["b", "L", "S", "@"].map((sequence) => isDropped(sequence, 80))).toEqual(Array(4).fill(false));
  });

  it("leaves the mouse to the person", () => {
    const { isDropped } = silenced();
    expect([isDropped("?h", 1000), isDropped("?h", 25, 1006), isDropped("?h", 25), isDropped("?h", 1049)]).toEqual([true, true, false, false]);
  });
});
