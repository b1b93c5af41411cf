import { isString, recall, remember } from "../storage";

/** What a person has begun to write, per sandbox; it survives switching, errors, pauses and reloads. */
export class Drafts {
  #texts = $state<Record<string, string>>({});

  get(sandbox: string): string {
    return this.#texts[sandbox] ?? recall(`draft:${sandbox}`, isString) ?? "";
  }

  set(sandbox: string, text: string): void {
    this.#texts[sandbox] = text;
    remember(`draft:${sandbox}`, text);
  }
}
