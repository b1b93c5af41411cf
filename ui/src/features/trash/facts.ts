import type { PurgeFacts } from "../../lib/types";
import { m } from "../../paraglide/messages.js";

/** What would be lost because it exists nowhere else, each in a few words. */
export function onlyHere(facts: PurgeFacts): string[] {
  return [
    facts.unpushedCommits > 0 ? m.purge_commits({ count: facts.unpushedCommits }) : "",
    facts.uncommittedFiles > 0 ? m.purge_files({ count: facts.uncommittedFiles }) : "",
    facts.hasStash ? m.purge_stash() : "",
    facts.skipped.length > 0 ? m.purge_skipped({ count: facts.skipped.length }) : "",
  ].filter((words) => words !== "");
}
