/**
 * What each failure is called on screen: its cause, what to do about it and the button that does it. The engine's code decides,
 * never its text; the text is shown beside it as the detail. A new code does not build until someone has written its words.
 */
import { m } from "../paraglide/messages.js";
import type { ErrorCode, ErrorKind } from "./types";

export type Severity = "danger" | "warning";
/** What a button beside an error can do. Who shows the error decides which of them it can offer. */
export type Remedy = "retry" | "settings" | "doctor" | "runAgain" | "resume" | "send" | "reload";
export type Copy = { cause: () => string; remedy: () => string; action: Remedy | null; severity: Severity };

const copy = (cause: () => string, remedy: () => string, action: Remedy | null, severity: Severity = "danger"): Copy => ({ cause, remedy, action, severity });

export const errorCopy = {
  notFound: copy(m.error_not_found, m.error_not_found_remedy, "reload"),
  invalid: copy(m.error_invalid, m.error_invalid_remedy, null),
  notARepository: copy(m.error_not_a_repository, m.error_not_a_repository_remedy, null),
  emptyRepository: copy(m.error_empty_repository, m.error_empty_repository_remedy, null),
  bareRepository: copy(m.error_bare_repository, m.error_bare_repository_remedy, null),
  pathMissing: copy(m.error_path_missing, m.error_path_missing_remedy, null),
  pathIsFile: copy(m.error_path_is_file, m.error_path_is_file_remedy, null),
  illegalState: copy(m.error_illegal_state, m.error_illegal_state_remedy, "reload", "warning"),
  workflowSandbox: copy(m.error_workflow_sandbox, m.error_workflow_sandbox_remedy, null, "warning"),
  missingCli: copy(m.error_missing_cli, m.error_missing_cli_remedy, "doctor"),
  missingKey: copy(m.error_missing_key, m.error_missing_key_remedy, "settings"),
  noKeychain: copy(m.error_no_keychain, m.error_no_keychain_remedy, null, "warning"),
  noJail: copy(m.error_no_jail, m.error_no_jail_remedy, "doctor"),
  unsupported: copy(m.error_unsupported, m.error_unsupported_remedy, null, "warning"),
  databaseBusy: copy(m.error_database_busy, m.error_database_busy_remedy, "retry", "warning"),
  databaseNewer: copy(m.error_database_newer, m.error_database_newer_remedy, null),
  databaseDamaged: copy(m.error_database_damaged, m.error_database_damaged_remedy, null),
  diskFull: copy(m.error_disk_full, m.error_disk_full_remedy, "retry"),
  dataFolder: copy(m.error_data_folder, m.error_data_folder_remedy, "retry"),
  provider: copy(m.error_provider, m.error_provider_remedy, "settings"),
  network: copy(m.error_network, m.error_network_remedy, "retry"),
  alreadyOpen: copy(m.error_already_open, m.error_already_open_remedy, "reload", "warning"),
  shuttingDown: copy(m.error_shutting_down, m.error_shutting_down_remedy, null, "warning"),
  internal: copy(m.error_internal, m.error_internal_remedy, "retry"),
} satisfies Record<ErrorCode, Copy>;

/** Why a turn failed. */
export const turnErrorCopy = {
  missing_cli: copy(m.turn_error_missing_cli, m.turn_error_missing_cli_remedy, "doctor"),
  missing_key: copy(m.turn_error_missing_key, m.turn_error_missing_key_remedy, "settings"),
  rejected_key: copy(m.turn_error_rejected_key, m.turn_error_rejected_key_remedy, "settings"),
  permission: copy(m.turn_error_permission, m.turn_error_permission_remedy, null),
  billing: copy(m.turn_error_billing, m.turn_error_billing_remedy, null),
  rate_limited: copy(m.turn_error_rate_limited, m.turn_error_rate_limited_remedy, null, "warning"),
  overloaded: copy(m.turn_error_overloaded, m.turn_error_overloaded_remedy, "send", "warning"),
  context_too_long: copy(m.turn_error_context_too_long, m.turn_error_context_too_long_remedy, "runAgain"),
  limit_reached: copy(m.turn_error_limit_reached, m.turn_error_limit_reached_remedy, "send", "warning"),
  network: copy(m.turn_error_network, m.turn_error_network_remedy, "send"),
  session_not_found: copy(m.turn_error_session_not_found, m.turn_error_session_not_found_remedy, "send"),
  interrupted: copy(m.turn_error_interrupted, m.turn_error_interrupted_remedy, "send", "warning"),
  crashed: copy(m.turn_error_crashed, m.turn_error_crashed_remedy, "send"),
  other: copy(m.turn_error_other, m.turn_error_other_remedy, "send"),
} satisfies Record<ErrorKind, Copy>;

/** Words for the button of a remedy. */
export const remedyWords = {
  retry: m.remedy_retry,
  settings: m.remedy_settings,
  doctor: m.remedy_doctor,
  runAgain: m.remedy_run_again,
  resume: m.remedy_resume,
  send: m.remedy_send,
  reload: m.remedy_reload,
} satisfies Record<Remedy, () => string>;
