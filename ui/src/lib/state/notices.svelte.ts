import { errorCopy, type Severity } from "../errors";
import { CourierError } from "../ipc/client";

/** What a notice offers to do about what it says. */
export type NoticeAction = { label: string; run: () => Promise<unknown> };
export type Notice = { id: number; severity: Severity | "info"; text: string; detail: string | null; action: NoticeAction | null };

/** How long a notice of something done stays: long enough to take it back. */
const STAYS = 12_000;

/** Short notices at the window's lower edge: what was done, and what went wrong where no place shows an error of its own. */
export class Notices {
  #list = $state.raw<Notice[]>([]);
  #lastId = 0;

  get list(): Notice[] {
    return this.#list;
  }

  /** Does `work`; a failure becomes a notice. Says whether it succeeded. */
  async attempt(work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (thrown) {
      this.add(CourierError.from(thrown));
      return false;
    }
  }

  add(error: CourierError): void {
    const copy = errorCopy[error.code];
    this.#put({ severity: copy.severity, text: copy.cause(), detail: error.message || copy.remedy(), action: null });
  }

  /** Says that something was done; goes away by itself. */
  say(text: string, action: NoticeAction | null = null): void {
    const id = this.#put({ severity: "info", text, detail: null, action });
    setTimeout(() => this.dismiss(id), STAYS);
  }

  act(id: number): void {
    const action = this.#list.find((notice) => notice.id === id)?.action;
    this.dismiss(id);
    if (action) void this.attempt(action.run);
  }

  #put(notice: Omit<Notice, "id">): number {
    const id = ++this.#lastId;
    this.#list = [...this.#list.slice(-2), { id, ...notice }];
    return id;
  }

  dismiss(id: number): void {
    this.#list = this.#list.filter((notice) => notice.id !== id);
  }
}
