import { errorCopy, type Severity } from "../errors";
import { CourierError } from "../ipc/client";

export type Notice = { id: number; severity: Severity; text: string; detail: string | null };

/** Short notices at the window's lower edge: what went wrong with an action whose place shows no error of its own. */
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
    this.#list = [...this.#list.slice(-2), { id: ++this.#lastId, severity: copy.severity, text: copy.cause(), detail: error.message || copy.remedy() }];
  }

  dismiss(id: number): void {
    this.#list = this.#list.filter((notice) => notice.id !== id);
  }
}
