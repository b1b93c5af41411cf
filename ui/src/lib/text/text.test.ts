import { describe, expect, it } from "vitest";
import { parseAnsi, stripAnsi } from "./ansi";
import { showBidi } from "./bidi";
import { fillGap, parsePatch, sideBySide } from "./diff";
import { linkTarget, renderMarkdown, sanitise } from "./markdown";

function draw(text: string): HTMLElement {
  const node = document.createElement("div");
  for (const block of renderMarkdown(text)) node.append(sanitise(block.html));
  return node;
}

describe("the agent's Markdown", () => {
  it("shows raw HTML as the text it is", () => {
    const node = draw('<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\nin <b onclick="alert(1)">line</b> <iframe src="https://example.org"></iframe>');
    expect(node.querySelector("script, img, iframe, b, [onerror], [onclick]")).toBeNull();
    expect(node.textContent).toContain("<script>alert(1)</script>");
  });

  it("loads no picture from anywhere", () => {
    const node = draw("![a chart](https://example.org/track.png) ![](data:image/svg+xml;base64,AAAA)");
    expect(node.querySelector("img, svg, [src], [style]")).toBeNull();
    expect(node.textContent).toContain("a chart");
  });

  it("keeps where a web link leads as data, so that a click cannot navigate", () => {
    const link = draw("[the standard](https://example.org/a?b=c&d=%22)").querySelector("a");
    expect(link?.getAttribute("href")).toBeNull();
    expect(link?.dataset.href).toBe("https://example.org/a?b=c&d=%22");
  });

  it.each(["javascript:alert(1)", "JaVaScRiPt:alert(1)", "file:///etc/passwd", "data:text/html,<script>1</script>", "vbscript:x", "/etc/passwd", "#top"])("makes plain text of a link to %s", (target) => {
    const node = draw(`[words](<${target}>)`);
    expect(node.querySelector("a")).toBeNull();
    expect(node.textContent).toContain("words");
    expect(linkTarget(target)).toBeNull();
  });

  it("cannot be tricked out of an attribute by a link's target", () => {
    const node = draw('[x](https://example.org/"onmouseover="alert(1)) <https://example.org/"><img src=x>');
    expect(node.querySelector("[onmouseover], img")).toBeNull();
  });

  it("shows characters that reorder text instead of obeying them", () => {
    expect(draw("rm \u202efdp.exe\u202c").textContent).toContain("rm ⟦RLO⟧fdp.exe⟦PDF⟧");
    expect(showBidi("a\u2066b\u2069")).toBe("a⟦LRI⟧b⟦PDI⟧");
  });

  it("shows what hides between letters, and keeps what writing needs", () => {
    expect(showBidi("pay\u200bpal \ufeffx\u00ady \u3164 a\u200db")).toBe("pay⟦ZWSP⟧pal ⟦BOM⟧x⟦SHY⟧y ⟦HF⟧ a⟦ZWJ⟧b");
    expect(showBidi("a\u{e0068}\u{e0069}b")).toBe("a⟦U+E0068⟧⟦U+E0069⟧b");
    expect(showBidi("\u001b]0;title\u0007\u0000\t\n\r\n")).toBe("⟦ESC⟧]0;title⟦BEL⟧⟦NUL⟧\t\n\n");
    const fine = "👩‍👩‍👧‍👦 👩🏽‍🚒 ❤️‍🔥 🏳️‍🌈 1️⃣ 🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f} می\u200cخواهم क्\u200dष";
    expect(showBidi(fine)).toBe(fine);
    expect(showBidi("👩\u200d")).toBe("👩⟦ZWJ⟧");
  });

  it.each([
    ["quotes in quotes", "> ".repeat(9_000) + "x"],
    ["lists in lists", "- ".repeat(9_000) + "x"],
    ["numbers in numbers", "1. ".repeat(6_000) + "x"],
    ["lists further and further in", Array.from({ length: 140 }, (_, i) => " ".repeat(2 * i) + "- x").join("\n")],
    ["signs without an end", "_a".repeat(10_000)],
    ["brackets", "![".repeat(10_000)],
    ["more than a screen can hold", "word ".repeat(50_000)],
  ])("shows %s as it came", (_, text) => {
    const node = draw(text);
    expect(node.querySelector("blockquote, li, em, a")).toBeNull();
    expect(node.textContent).toBe(text);
  });

  it("reads lists and quotes of a depth a person writes", () => {
    const node = draw("> > > quoted\n\n" + Array.from({ length: 8 }, (_, i) => "  ".repeat(i) + "- x").join("\n") + "\n\n- [a](https://example.org) ".repeat(300));
    expect(node.querySelector("blockquote blockquote blockquote")).not.toBeNull();
    expect(node.querySelectorAll("li").length).toBeGreaterThan(8);
  });

  it("keeps finished blocks the same while the last one streams in", () => {
    const [one] = renderMarkdown("First.\n\nSecond beg");
    const [same, grown] = renderMarkdown("First.\n\nSecond begins");
    expect(same).toEqual(one);
    expect(grown?.html).toContain("Second begins");
  });
});

describe("terminal output", () => {
  it("becomes runs of coloured text", () => {
    expect(parseAnsi("a \u001b[1;31mred\u001b[0m b").map(({ text, colour, isBold }) => [text, colour, isBold])).toEqual([["a ", null, false], ["red", "red", true], [" b", null, false]]);
    expect(parseAnsi("\u001b[38;5;196mx\u001b[38;2;1;2;3my")).toMatchObject([{ text: "x", rgb: "255, 0, 0" }, { text: "y", rgb: "1, 2, 3" }]);
    expect(parseAnsi("\u001b[92mbright\u001b[39m plain")).toMatchObject([{ colour: "green" }, { colour: null }]);
  });

  it("drops every other sequence, whole or cut off", () => {
    expect(stripAnsi("a\u001b]0;title\u0007b\u001b]52;c;aGk=\u001b\\c\u001b[2Jd\u001b]8;;https://example.org\u0007link\u001b]8;;\u0007\u001bPq#0\u001b\\e\u001b(Bf\u0000\u0008g")).toBe("abcdlinkefg");
    expect(stripAnsi("end\u001b[3")).toBe("end");
    expect(stripAnsi("end\u001b]52;c;aGk")).toBe("end");
    expect(stripAnsi("end\u001b")).toBe("end");
  });

  it("shows a progress bar's last state and text with markup as text", () => {
    expect(stripAnsi("10 %\r50 %\r100 %\r\ndone")).toBe("100 %\ndone");
    expect(stripAnsi("<b>&amp;</b>")).toBe("<b>&amp;</b>");
  });
});

describe("a patch", () => {
  it("numbers its lines and marks the words that changed", () => {
    const lines = parsePatch("--- a/x\n+++ b/x\n@@ -21,2 +21,2 @@\n ctx\n-  return send(req);\n+  return send(copy);\n");
    expect(lines.map(({ kind, before, after }) => [kind, before, after])).toEqual([["context", 21, 21], ["removed", 22, null], ["added", null, 22]]);
    expect(lines.map(({ text, marks }) => marks.map(([from, to]) => text.slice(from, to)))).toEqual([[], ["req"], ["copy"]]);
  });

  it("keeps lines that only look like headers", () => {
    expect(parsePatch("@@ -1 +1 @@\n--- old\n+++ new\n").map(({ kind, text }) => [kind, text])).toEqual([["removed", "-- old"], ["added", "++ new"]]);
  });

  it("marks no words where little stays the same", () => {
    const [removed, added] = parsePatch("@@ -1 +1 @@\n-// Node 18 has a fetch that leaks sockets on abort.\n+export const fetch = globalThis.fetch;\n");
    expect([removed?.marks, added?.marks]).toEqual([[], []]);
  });

  it("says how many lines a gap stands for, and opens it from the whole text", () => {
    const lines = parsePatch("@@ -1,2 +1,3 @@\n a\n+b\n c\n@@ -6,1 +7,1 @@ fn main\n g\n");
    const gap = lines.find((line) => line.kind === "gap");
    expect([gap?.text, gap?.hidden]).toEqual(["fn main", { count: 3, before: 3, after: 4 }]);
    if (gap === undefined) throw new Error("there is no gap");
    const filled = fillGap(lines, gap, ["a", "b", "c", "d", "e", "f", "g"]);
    expect(filled.map(({ before, after, text }) => [before, after, text])).toEqual([[1, 1, "a"], [null, 2, "b"], [2, 3, "c"], [3, 4, "d"], [4, 5, "e"], [5, 6, "f"], [6, 7, "g"]]);
  });

  it("puts what was beside what is, and leaves a half empty where there is nothing", () => {
    const rows = sideBySide(parsePatch("@@ -1,4 +1,3 @@\n a\n-b\n-c\n+B\n d\n"));
    expect(rows.map((row) => (row.kind === "gap" ? "gap" : [row.before?.text ?? null, row.after?.text ?? null]))).toEqual([["a", "a"], ["b", "B"], ["c", null], ["d", "d"]]);
  });
});
