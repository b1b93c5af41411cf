import { describe, expect, it } from "vitest";
import type { Credential } from "./types";
import { holdsFor } from "./keys";

const key = (kind: Credential["kind"], ...usedBy: Credential["usedBy"]): Credential => ({ kind, name: kind, isSet: true, lastFour: null, isSessionOnly: false, usedBy });
const credentials = [key("anthropic_key", "claude", "pi"), key("claude_oauth_token", "claude"), key("openai_key", "pi"), key("github_token")];

describe("who pays", () => {
  it("is known for the default model, and for every model of an agent of one maker", () => {
    expect(holdsFor({ kind: "pi", defaultModel: "anthropic/sonnet" }, "anthropic/sonnet", credentials)).toBe(true);
    expect(holdsFor({ kind: "claude", defaultModel: "sonnet" }, "another", credentials)).toBe(true);
  });

  it("is not claimed where the model decides, nor where nothing is known of the keys", () => {
    expect(holdsFor({ kind: "pi", defaultModel: "anthropic/sonnet" }, "openai/gpt", credentials)).toBe(false);
    expect(holdsFor({ kind: "claude", defaultModel: "sonnet" }, "another", [])).toBe(false);
  });
});
