import { SvelteMap } from "svelte/reactivity";

/** Which rows a person has opened or closed; kept outside the rows, which come and go with the sight. */
export class Opened {
  #choices = new SvelteMap<string, boolean>();

  has(key: string, isOpenByItself = false): boolean {
    return this.#choices.get(key) ?? isOpenByItself;
  }

  toggle(key: string, isOpenByItself = false): void {
    this.#choices.set(key, !this.has(key, isOpenByItself));
  }
}
