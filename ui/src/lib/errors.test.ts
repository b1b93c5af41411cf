import { describe, expect, it } from "vitest";
import { errorCopy, remedyWords, turnErrorCopy } from "./errors";

describe("the words for errors", () => {
  it("give every code a sentence of cause and one of remedy, without exclamation", () => {
    const all = [...Object.entries(errorCopy), ...Object.entries(turnErrorCopy)];
    expect(all.length).toBe(24 + 14);
    for (const [code, copy] of all) {
      expect(copy.cause(), code).toMatch(/^[A-Z].*\.$/);
      expect(copy.remedy(), code).toMatch(/^[A-Z].*\.$/);
      expect(copy.cause() + copy.remedy(), code).not.toMatch(/!|oops/i);
      if (copy.action !== null) expect(remedyWords[copy.action](), code).not.toBe("");
    }
  });
});
