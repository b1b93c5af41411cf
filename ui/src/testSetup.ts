/** What jsdom lacks and the window needs: sizes, media queries, modal dialogs. */
import { beforeEach } from "vitest";

globalThis.ResizeObserver ??= class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
window.matchMedia ??= (query: string) => Object.assign(new EventTarget(), { matches: false, media: query }) as unknown as MediaQueryList;
HTMLDialogElement.prototype.showModal ??= function (this: HTMLDialogElement) {
  this.open = true;
};
HTMLDialogElement.prototype.close ??= function (this: HTMLDialogElement) {
  this.open = false;
};
HTMLElement.prototype.scrollIntoView ??= () => {};

beforeEach(() => localStorage.clear());
