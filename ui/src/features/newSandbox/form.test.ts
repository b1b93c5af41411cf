import { describe, expect, it } from "vitest";
import { createFake } from "../../lib/ipc/fake/fake";
import { agents } from "../../lib/ipc/fake/data";
import { hosts, issue, NewSandboxForm, number } from "./form.svelte";

const client = createFake(new URLSearchParams());

describe("the new-sandbox form", () => {
  it("follows the project's defaults where nothing was chosen", async () => {
    const form = new NewSandboxForm(client, "p1", null);
    await form.loadDefaults();
    form.prompt = " do it ";
    form.set("timeout", "0.02");
    expect(form.problems.size).toBe(0);
    expect(form.request(agents())).toMatchObject({ prompt: "do it", agent: "claude", model: "claude-sonnet-4-5", timeoutMinutes: 0.02, memoryMb: 1024, network: "listed", allowedHosts: ["github.com", "packages.example.org"], title: null, branch: null });
  });

  it("survives closing, but forgets the values of variables and what was started", async () => {
    const form = new NewSandboxForm(client, "p1", null);
    form.prompt = "half a thought";
    form.addVariable("TOKEN", "s3cret");
    form.set("agent", "shell");
    const again = new NewSandboxForm(client, "p1", null);
    expect([again.prompt, again.get("agent"), again.variables.length]).toEqual(["half a thought", "shell", 0]);
    expect(JSON.stringify({ ...localStorage })).not.toContain("s3cret");
    await again.loadDefaults();
    expect(await again.start(agents())).not.toBeNull();
    expect(new NewSandboxForm(client, "p1", null).prompt).toBe("");
  });

  it("keeps what was written when the engine refuses, and says why", async () => {
    const form = new NewSandboxForm(client, "p1", { prompt: "x", agent: "codex" });
    await form.loadDefaults();
    expect(await form.start(agents())).toBeNull();
    expect([form.prompt, form.error?.code]).toEqual(["x", "missingCli"]);
  });

  it("reads numbers and hosts as people write them", () => {
    expect(["15", "0.02", "0,5", "1,024", "1 024", ""].map(number)).toEqual([15, 0.02, 0.5, 1024, 1024, Number.NaN]);
    expect(hosts("GitHub.com, a.example\n a.example ;b.example")).toEqual(["github.com", "a.example", "b.example"]);
  });

  it("reads an issue by number or by address, and refuses anything else", async () => {
    expect(["12", " #12 ", "https://github.com/acme/shop/issues/12#comment"].map(issue)).toEqual([{ number: 12, url: "" }, { number: 12, url: "" }, { number: 12, url: "https://github.com/acme/shop/issues/12" }]);
    expect(["", "0", "twelve", "https://github.com/acme/shop/pull/12", "javascript:alert(1)//issues/12"].map(issue)).toEqual([null, null, null, null, null]);
    const form = new NewSandboxForm(client, "p1", null);
    await form.loadDefaults();
    form.prompt = "x";
    form.set("issue", "twelve");
    expect([...form.problems]).toEqual(["issue"]);
  });

  it("begins from a checkpoint without the person's uncommitted changes, which are never taken unasked", async () => {
    const form = new NewSandboxForm(client, "p1", { prompt: "x", begin: { sandbox: "s2", checkpoint: "s2-c1" } });
    await form.loadDefaults();
    form.includesUncommitted = true;
    expect(form.request(agents())).toMatchObject({ begin: { sandbox: "s2", checkpoint: "s2-c1" }, includesUncommitted: false, issue: null });
    form.begin = null;
    expect(form.request(agents())).toMatchObject({ begin: null, includesUncommitted: true });
    expect(new NewSandboxForm(client, "p1", null).includesUncommitted).toBe(false);
  });
});
