import { describe, expect, it } from "vitest";
import { joinWords, splitWords } from "./shellWords";

describe("arguments in one field", () => {
  it("are parted as a shell parts them", () => {
    expect(splitWords("  --add-dir /x   --tools=Bash ")).toEqual(["--add-dir", "/x", "--tools=Bash"]);
    expect(splitWords(`--say "two words" 'it''s' a\\ b "a \\"b\\" \\\\ \\n"`)).toEqual(["--say", "two words", "its", "a b", 'a "b" \\ \\n']);
    expect(splitWords(`-c model="o3 mini" ''`)).toEqual(["-c", "model=o3 mini", ""]);
    expect(splitWords("")).toEqual([]);
    expect(splitWords("$HOME *")).toEqual(["$HOME", "*"]);
    expect(splitWords("C:\\")).toEqual(["C:\\"]);
  });

  it("are not guessed where a quote is open", () => {
    expect([`--say "two`, "it's"].map(splitWords)).toEqual([null, null]);
  });

  it("come back as they were written down", () => {
    for (const words of [["--add-dir", "/a b"], ["it's", "", '"', "\\", "-c", "x=[1, 2]"], ["日本"], ["a\nb"]]) expect(splitWords(joinWords(words))).toEqual(words);
    expect(joinWords(["--add-dir", "/x", "--tools=Bash"])).toBe("--add-dir /x --tools=Bash");
  });
});
