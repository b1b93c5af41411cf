/** Work that a dialog begins: whether it runs, and what went wrong with it, in words. */
import { errorCopy, type Severity } from "./errors";
import { CourierError } from "./ipc/client";

export type Failure = { cause: string; remedy: string; detail: string; severity: Severity };

export class Asking {
  isBusy = $state(false);
  failure = $state.raw<Failure | null>(null);

  /** Says whether it succeeded. */
  async attempt(work: () => Promise<unknown>): Promise<boolean> {
    if (this.isBusy) return false;
    this.isBusy = true;
    try {
      await work();
      this.failure = null;
      return true;
    } catch (thrown) {
      const error = CourierError.from(thrown);
      const copy = errorCopy[error.code];
      this.failure = { cause: copy.cause(), remedy: copy.remedy(), detail: error.message, severity: copy.severity };
      return false;
    } finally {
      this.isBusy = false;
    }
  }
}
