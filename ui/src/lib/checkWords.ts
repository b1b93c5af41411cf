import { m } from "../paraglide/messages.js";

/** The words around the doctor's checks, which a component may not look up itself. */
export function checkWords() {
  return {
    show: m.check_show(),
    hide: m.check_hide(),
    lookedFor: m.check_looked_for(),
    states: { ok: m.check_ok(), warning: m.check_warning(), failed: m.check_failed(), notFound: m.check_not_found() },
  };
}
