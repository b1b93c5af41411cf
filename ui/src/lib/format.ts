/** Times, durations and numbers as a person reads them. Everything takes `now`: the caller owns the clock. */
import { m } from "../paraglide/messages.js";
import { getLocale } from "../paraglide/runtime.js";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const formats = new Map<string, Intl.DateTimeFormat>();
function date(at: number, options: Intl.DateTimeFormatOptions): string {
  const key = getLocale() + JSON.stringify(options);
  let format = formats.get(key);
  if (format === undefined) formats.set(key, (format = new Intl.DateTimeFormat(getLocale() === "en" ? "en-GB" : getLocale(), options)));
  return format.format(at);
}

/** 18,204 */
export function count(value: number): string {
  return new Intl.NumberFormat(getLocale()).format(value);
}

/** As short as a narrow column wants it: 412, 9.2k, 118k. */
export function shortCount(value: number): string {
  if (value < 1_000) return count(value);
  return `${new Intl.NumberFormat(getLocale(), { maximumFractionDigits: value < 9_950 ? 1 : 0 }).format(value / 1_000)}k`;
}

/** The short age in a list: now, 14 min, 2 h, 28 Nov. */
export function age(at: number, now: number): string {
  const past = now - at;
  if (past < MINUTE) return m.time_now();
  if (past < HOUR) return m.time_minutes({ count: Math.floor(past / MINUTE) });
  if (past < DAY) return m.time_hours({ count: Math.floor(past / HOUR) });
  return date(at, { day: "numeric", month: "short", ...(past > 300 * DAY ? { year: "numeric" } : {}) });
}

/** Relative under a day, a date after: 1 min ago, 28 Nov. */
export function ago(at: number, now: number): string {
  const past = now - at;
  if (past < 10 * SECOND) return m.time_just_now();
  if (past < MINUTE) return m.time_ago({ time: m.time_seconds({ count: Math.floor(past / SECOND) }) });
  if (past < DAY) return m.time_ago({ time: age(at, now) });
  return date(at, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

/** 29 November 2026, 14:45:58: what hovering a relative time shows. */
export function exact(at: number): string {
  const day = date(at, { day: "numeric", month: "long", year: "numeric" });
  return `${day}, ${date(at, { hour: "2-digit", minute: "2-digit", second: "2-digit" })}`;
}

/** 14:45 today, else with the day. */
export function clockTime(at: number, now: number): string {
  const time = date(at, { hour: "2-digit", minute: "2-digit" });
  return new Date(at).toDateString() === new Date(now).toDateString() ? time : `${date(at, { day: "numeric", month: "short" })}, ${time}`;
}

/** How long something took: 0.4 s, 38 s, 4 min 12 s, 2 h 5 min. */
export function duration(milliseconds: number): string {
  const past = Math.max(0, milliseconds);
  if (past < 10 * SECOND) return m.time_seconds({ count: (Math.round(past / 100) / 10).toFixed(1) });
  if (past < MINUTE) return m.time_seconds({ count: Math.floor(past / SECOND) });
  const seconds = Math.floor(past / SECOND) % 60;
  const minutes = Math.floor(past / MINUTE) % 60;
  const hours = Math.floor(past / HOUR);
  if (hours > 0) return minutes > 0 ? `${m.time_hours({ count: hours })} ${m.time_minutes({ count: minutes })}` : m.time_hours({ count: hours });
  return seconds > 0 ? `${m.time_minutes({ count: minutes })} ${m.time_seconds({ count: seconds })}` : m.time_minutes({ count: minutes });
}

/** The same where it is only worth a word if it took a while: nothing instead of 0.0 s. */
export function shortly(milliseconds: number): string {
  return milliseconds < 50 ? "" : duration(milliseconds);
}

/** What something occupies, as files are usually measured: 312 B, 41 KB, 1.4 GB. */
export function bytes(value: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let amount = Math.max(0, value);
  let unit = 0;
  while (amount >= 1000 && unit < units.length - 1) {
    amount /= 1024;
    unit++;
  }
  const digits = unit > 0 && amount < 9.95 ? 1 : 0;
  return `${new Intl.NumberFormat(getLocale(), { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(amount)} ${units[unit] ?? ""}`;
}

/** A running clock in whole seconds: 8 s, 1 min 12 s. */
export function elapsed(milliseconds: number): string {
  if (milliseconds >= 10 * SECOND) return duration(milliseconds);
  return m.time_seconds({ count: Math.max(0, Math.floor(milliseconds / SECOND)) });
}

/** Time left without a countdown until two minutes remain, then m:ss. */
export function left(milliseconds: number): string {
  const remaining = Math.max(0, milliseconds);
  if (remaining < 2 * MINUTE) {
    const seconds = Math.ceil(remaining / SECOND);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  }
  const minutes = Math.floor(remaining / MINUTE);
  if (minutes < 60) return m.time_minutes({ count: minutes });
  const rest = minutes % 60;
  return rest === 0 ? m.time_hours({ count: minutes / 60 }) : `${m.time_hours({ count: Math.floor(minutes / 60) })} ${m.time_minutes({ count: rest })}`;
}

export function isLow(milliseconds: number): boolean {
  return milliseconds < 2 * MINUTE;
}
