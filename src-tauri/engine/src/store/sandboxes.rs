//! `sandboxes`, with `transitions` and `running_intervals`, which only `advance` writes.

use std::{collections::BTreeSet, str::FromStr, time::Duration};

use rusqlite::{Connection, OptionalExtension, Row, named_params, types::Type};

use super::{
    Change, Error, Tx,
    deliveries::{self, PullRequest, Pushed},
};
use crate::model::{
    Activity, AgentKind, CheckpointId, Ending, Lifecycle, NetworkMode, OnTimeout, ProjectId, ProviderKind, SandboxId,
    Status, Timestamp,
};

/// What happened to a sandbox that is `error`, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxError {
    /// A code: an error kind of an agent, or of provisioning.
    pub kind: String,
    pub message: String,
    pub remedy: String,
}

/// A sandbox as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRow {
    pub id: SandboxId,
    pub project: ProjectId,
    pub title: String,
    pub lifecycle: Lifecycle,
    pub error: Option<SandboxError>,
    pub step: Option<String>,
    pub headline: String,
    pub provider: ProviderKind,
    pub provider_id: Option<String>,
    pub agent: AgentKind,
    pub agent_version: Option<String>,
    pub agent_session: Option<String>,
    pub billed_to: Option<String>,
    /// The agent had its key itself; else it asks its model through the gateway, or needs no key.
    pub is_key_inside: bool,
    pub model: Option<String>,
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    pub memory_mb: u32,
    pub cpus: u32,
    pub limits_enforced: bool,
    pub network: NetworkMode,
    pub allowed_hosts: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub setup_script: Option<String>,
    /// `standalone`, `issue` or `run`.
    pub origin: String,
    pub parent: Option<SandboxId>,
    pub repository: String,
    pub base_branch: String,
    pub base_commit: String,
    pub branch: String,
    /// The checkpoint it began from.
    pub begin: Option<CheckpointId>,
    /// It began with the person's uncommitted changes.
    pub includes_uncommitted: bool,
    /// The issue it was made from: number and URL.
    pub issue: Option<(u64, String)>,
    pub pushed: Option<Pushed>,
    pub pull_request: Option<PullRequest>,
    pub is_unsaved: bool,
    /// Crashes of the agent in a row.
    pub crashes: u32,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// Running time left, while it stands still.
    pub remaining: Option<Duration>,
    pub deleted_at: Option<Timestamp>,
    /// Its workspace, home and spools were removed then.
    pub files_cleaned_at: Option<Timestamp>,
    /// Messages that wait for the agent.
    pub queued: u32,
    /// Whether a turn is open.
    pub is_working: bool,
    /// When its agent goes on by itself, since a limit ends then.
    pub continue_at: Option<Timestamp>,
    /// For how many minutes its working agent has printed nothing, where that is worth saying. Never stored.
    pub quiet_minutes: Option<u32>,
}

/// What a new sandbox's row is made from.
#[derive(Clone, Debug)]
pub struct NewSandboxRow {
    pub id: SandboxId,
    pub project: ProjectId,
    pub title: String,
    pub provider: ProviderKind,
    pub agent: AgentKind,
    pub model: Option<String>,
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    pub memory_mb: u32,
    pub cpus: u32,
    pub network: NetworkMode,
    pub allowed_hosts: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub setup_script: Option<String>,
    pub parent: Option<SandboxId>,
    pub repository: String,
    pub base_branch: String,
    pub branch: String,
    pub begin: Option<CheckpointId>,
    pub includes_uncommitted: bool,
    pub issue: Option<(u64, String)>,
    pub created_at: Timestamp,
}

/// One change of status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionRow {
    pub from: Option<Status>,
    pub to: Status,
    pub reason: Option<String>,
    pub at: Timestamp,
}

/// Which sandboxes to list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub project: Option<ProjectId>,
    /// Empty: all.
    pub statuses: Vec<Status>,
    /// Part of a title.
    pub search: Option<String>,
    /// The last row of the page before.
    pub after: Option<(Timestamp, SandboxId)>,
    pub limit: u32,
}

/// A page of sandboxes, newest first.
#[derive(Clone, Debug)]
pub struct Page {
    pub rows: Vec<SandboxRow>,
    /// Whether more follow.
    pub has_more: bool,
    /// How many there are on all pages.
    pub total: u32,
}

pub(super) const SELECT: &str = "SELECT sandboxes.*,
    (SELECT COUNT(*) FROM messages WHERE sandbox = sandboxes.id AND delivery = 'queued') AS queued,
    EXISTS (SELECT 1 FROM turns WHERE sandbox = sandboxes.id AND ended_at IS NULL) AS is_working,
    (SELECT due_at FROM jobs WHERE kind = 'continue' AND key = sandboxes.id AND state = 'due') AS continue_at
    FROM sandboxes";

/// A column that holds text with a type of its own.
pub(super) fn parsed<T: FromStr>(row: &Row<'_>, column: &str) -> rusqlite::Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text: String = row.get(column)?;
    text.parse().map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

/// A column that holds one of a word's codes.
pub(super) fn coded<T>(row: &Row<'_>, column: &str, from_code: impl Fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    from_code(&text)
        .ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, format!("{column} {text:?}").into()))
}

pub(super) fn listed<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl TryFrom<&Row<'_>> for SandboxRow {
    type Error = rusqlite::Error;
    fn try_from(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp::from_millis));
        let ending: Option<String> = row.get("ending")?;
        let error = match row.get::<_, Option<String>>("error_kind")? {
            None => None,
            Some(kind) => Some(SandboxError {
                kind,
                message: row.get::<_, Option<String>>("error_message")?.unwrap_or_default(),
                remedy: row.get::<_, Option<String>>("error_remedy")?.unwrap_or_default(),
            }),
        };
        Ok(Self {
            id: parsed(row, "id")?,
            project: parsed(row, "project")?,
            title: row.get("title")?,
            lifecycle: Lifecycle {
                status: coded(row, "status", Status::from_code)?,
                activity: coded(row, "activity", Activity::from_code)?,
                ending: ending.as_deref().and_then(Ending::from_code),
            },
            error,
            step: row.get("step")?,
            headline: row.get("headline")?,
            provider: coded(row, "provider", ProviderKind::from_code)?,
            provider_id: row.get("provider_id")?,
            agent: coded(row, "agent", AgentKind::from_code)?,
            agent_version: row.get("agent_version")?,
            agent_session: row.get("agent_session")?,
            billed_to: row.get("billed_to")?,
            is_key_inside: row.get("is_key_inside")?,
            model: row.get("model")?,
            timeout: duration(row.get("timeout_ms")?),
            on_timeout: coded(row, "on_timeout", OnTimeout::from_code)?,
            memory_mb: row.get("memory_mb")?,
            cpus: row.get("cpus")?,
            limits_enforced: row.get("limits_enforced")?,
            network: coded(row, "network", NetworkMode::from_code)?,
            allowed_hosts: listed(row, "allowed_hosts")?,
            variables: listed(row, "variables")?,
            setup_script: row.get("setup_script")?,
            origin: row.get("origin")?,
            parent: row.get::<_, Option<String>>("parent")?.and_then(|id| id.parse().ok()),
            repository: row.get("repository")?,
            base_branch: row.get("base_branch")?,
            base_commit: row.get("base_commit")?,
            branch: row.get("branch")?,
            begin: row.get::<_, Option<String>>("begin_checkpoint")?.and_then(|id| id.parse().ok()),
            includes_uncommitted: row.get("includes_uncommitted")?,
            issue: row
                .get::<_, Option<i64>>("origin_issue")?
                .and_then(|number| u64::try_from(number).ok())
                .zip(row.get("origin_url")?),
            pushed: deliveries::pushed(row)?,
            pull_request: deliveries::pull_request(row)?,
            is_unsaved: row.get("is_unsaved")?,
            crashes: row.get("crashes")?,
            created_at: Timestamp::from_millis(row.get("created_at")?),
            started_at: time("started_at")?,
            ended_at: time("ended_at")?,
            expires_at: time("expires_at")?,
            remaining: row.get::<_, Option<i64>>("remaining_ms")?.map(duration),
            deleted_at: time("deleted_at")?,
            files_cleaned_at: time("files_cleaned_at")?,
            queued: row.get("queued")?,
            is_working: row.get("is_working")?,
            continue_at: time("continue_at")?,
            quiet_minutes: None,
        })
    }
}

/// Adds a sandbox that is `creating`.
pub fn insert(tx: &Tx<'_>, new: &NewSandboxRow) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO sandboxes (id, project, title, status, provider, agent, model, timeout_ms, on_timeout, memory_mb,
            cpus, network, allowed_hosts, variables, setup_script, parent, repository, base_branch, base_commit,
            branch, begin_checkpoint, includes_uncommitted, origin, origin_issue, origin_url, created_at)
         VALUES (:id, :project, :title, 'creating', :provider, :agent, :model, :timeout_ms, :on_timeout, :memory_mb,
            :cpus, :network, :allowed_hosts, :variables, :setup_script, :parent, :repository, :base_branch, '',
            :branch, :begin, :includes_uncommitted, :origin, :issue, :issue_url, :created_at)",
        named_params! {
            ":id": new.id.to_string(),
            ":project": new.project.to_string(),
            ":title": new.title,
            ":provider": new.provider.code(),
            ":agent": new.agent.code(),
            ":model": new.model,
            ":timeout_ms": millis(new.timeout),
            ":on_timeout": new.on_timeout.code(),
            ":memory_mb": new.memory_mb,
            ":cpus": new.cpus,
            ":network": new.network.code(),
            ":allowed_hosts": json(&new.allowed_hosts),
            ":variables": json(&new.variables),
            ":setup_script": new.setup_script,
            ":parent": new.parent.map(|id| id.to_string()),
            ":repository": new.repository,
            ":base_branch": new.base_branch,
            ":branch": new.branch,
            ":begin": new.begin.map(|id| id.to_string()),
            ":includes_uncommitted": new.includes_uncommitted,
            ":origin": if new.issue.is_some() { "issue" } else { "standalone" },
            ":issue": new.issue.as_ref().and_then(|issue| i64::try_from(issue.0).ok()),
            ":issue_url": new.issue.as_ref().map(|issue| issue.1.as_str()),
            ":created_at": new.created_at.millis(),
        },
    )?;
    record(tx, new.id, None, Status::Creating, None, new.created_at)?;
    tx.changed(Change::Sandbox(new.id));
    tx.changed(Change::Project(new.project));
    Ok(())
}

pub(super) fn json<T: serde::Serialize>(plain: &T) -> String {
    serde_json::to_string(plain).expect("plain values serialise")
}

/// One sandbox.
pub fn get(connection: &Connection, id: SandboxId) -> Result<SandboxRow, Error> {
    connection
        .prepare_cached(&format!("{SELECT} WHERE id = :id"))?
        .query_row(named_params! { ":id": id.to_string() }, |row| SandboxRow::try_from(row))
        .optional()?
        .ok_or(Error::NotFound("sandbox"))
}

/// Every sandbox behind which something may still run, deleted ones included.
pub fn live(connection: &Connection) -> Result<Vec<SandboxRow>, Error> {
    let mut statement =
        connection.prepare_cached(&format!("{SELECT} WHERE status IN ('creating', 'running', 'paused')"))?;
    let rows = statement.query_map([], |row| Ok(readable(row)))?;
    Ok(rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Whether a provider has any of them.
pub fn has_live(connection: &Connection, provider: ProviderKind) -> Result<bool, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM sandboxes WHERE status IN ('creating', 'running', 'paused') AND provider = :provider)",
    )?;
    Ok(statement.query_row(named_params! { ":provider": provider.code() }, |row| row.get(0))?)
}

/// A row, unless it holds what no sandbox can: one such row must not take all the others with it.
pub(super) fn readable(row: &Row<'_>) -> Option<SandboxRow> {
    SandboxRow::try_from(row)
        .inspect_err(|error| {
            let id = row.get::<_, String>("id").unwrap_or_default();
            tracing::error!(sandbox = id, %error, "a sandbox's row cannot be read, and is passed over");
        })
        .ok()
}

/// One page, newest first.
///
/// Each status is asked for by itself and the answers are merged, so that every part of the question is a walk along an
/// index that ends with the page, however many sandboxes there are.
pub fn list(connection: &Connection, query: &Query) -> Result<Page, Error> {
    let mut filter = "deleted_at IS NULL".to_owned();
    filter += if query.project.is_some() { " AND project = :project" } else { " AND :project IS NULL" };
    filter += if query.search.is_some() { " AND title LIKE :search ESCAPE '\\'" } else { " AND :search IS NULL" };
    let parts: Vec<String> = if query.statuses.is_empty() {
        vec![filter]
    } else {
        let once: BTreeSet<&str> = query.statuses.iter().map(|status| status.code()).collect();
        once.into_iter().map(|status| format!("{filter} AND status = '{status}'")).collect()
    };
    let each = |what: &str, rest: &str| {
        let parts: Vec<_> =
            parts.iter().map(|part| format!("SELECT {what} FROM sandboxes WHERE {part}{rest}")).collect();
        parts.join(" UNION ALL ")
    };
    let project = query.project.map(|id| id.to_string());
    let search = query
        .search
        .as_ref()
        .map(|text| format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")));
    let (at, id) = query.after.map_or((i64::MAX, String::new()), |(at, id)| (at.millis(), id.to_string()));
    let found = each("id, created_at", " AND (created_at, id) < (:at, :id)");
    let mut statement = connection.prepare_cached(&format!(
        "{SELECT} WHERE id IN (SELECT id FROM ({found} ORDER BY created_at DESC, id DESC LIMIT :limit))
         ORDER BY created_at DESC, id DESC"
    ))?;
    let rows = statement.query_map(
        named_params! { ":project": project, ":search": search, ":at": at, ":id": id, ":limit": query.limit + 1 },
        |row| Ok(readable(row)),
    )?;
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    let has_more = rows.len() > query.limit as usize;
    rows.truncate(query.limit as usize);
    let rows = rows.into_iter().flatten().collect();
    let total = connection
        .prepare_cached(&format!("SELECT SUM(count) FROM ({})", each("COUNT(*) AS count", "")))?
        .query_row(named_params! { ":project": project, ":search": search }, |row| row.get(0))?;
    Ok(Page { rows, has_more, total })
}

/// Moves a sandbox on, unless another writer was first: status, its times, its interval and its transition, at once.
///
/// Running time is counted here: it begins with `running`, stands still when that ends, and goes on from what was left.
/// The clock may jump: more is never left than was ever given, and no interval begins before the last one ended.
pub fn advance(
    tx: &Tx<'_>,
    id: SandboxId,
    from: Lifecycle,
    to: Lifecycle,
    error: Option<&SandboxError>,
    at: Timestamp,
) -> Result<bool, Error> {
    let begins = to.status == Status::Running && from.status != Status::Running;
    let pauses = from.status == Status::Running && to.status != Status::Running;
    let ends = from.status.is_live() && !to.status.is_live();
    let changed = tx
        .prepare_cached(
            "UPDATE sandboxes SET
            status = :status, activity = :activity, ending = :ending,
            step = CASE WHEN :is_settled THEN NULL ELSE step END,
            error_kind = COALESCE(:error_kind, error_kind),
            error_message = COALESCE(:error_message, error_message),
            error_remedy = COALESCE(:error_remedy, error_remedy),
            started_at = CASE WHEN :begins THEN COALESCE(started_at, :at) ELSE started_at END,
            expires_at = CASE WHEN :begins THEN :at + COALESCE(remaining_ms, timeout_ms)
                              WHEN :pauses THEN NULL ELSE expires_at END,
            remaining_ms = CASE WHEN :begins OR :ends THEN NULL
                                WHEN :pauses THEN MIN(MAX(expires_at - :at, 0), timeout_ms) ELSE remaining_ms END,
            ended_at = CASE WHEN :ends THEN :at ELSE ended_at END
         WHERE id = :id AND status = :was AND activity = :doing",
        )?
        .execute(named_params! {
            ":id": id.to_string(),
            ":was": from.status.code(),
            ":doing": from.activity.code(),
            ":status": to.status.code(),
            ":activity": to.activity.code(),
            ":ending": to.ending.map(Ending::code),
            ":is_settled": to.activity == Activity::None,
            ":error_kind": error.map(|error| &error.kind),
            ":error_message": error.map(|error| &error.message),
            ":error_remedy": error.map(|error| &error.remedy),
            ":begins": begins,
            ":pauses": pauses,
            ":ends": ends,
            ":at": at.millis(),
        })?;
    if changed != 1 {
        return Ok(false);
    }
    if begins {
        tx.execute(
            "INSERT INTO running_intervals (sandbox, started_at)
             SELECT :sandbox, MAX(:at, COALESCE(MAX(ended_at), :at)) FROM running_intervals WHERE sandbox = :sandbox
             ON CONFLICT (sandbox, started_at) DO UPDATE SET ended_at = NULL",
            named_params! { ":sandbox": id.to_string(), ":at": at.millis() },
        )?;
    }
    if pauses {
        tx.execute(
            "UPDATE running_intervals SET ended_at = MAX(started_at, :at) WHERE sandbox = :sandbox AND ended_at IS NULL",
            named_params! { ":sandbox": id.to_string(), ":at": at.millis() },
        )?;
    }
    if from.status != to.status {
        let row = get(tx, id)?;
        let reason = match (to.status, to.ending) {
            (Status::Error, _) => row.error.as_ref().map(|error| error.kind.as_str()),
            (_, ending) => ending.map(Ending::code),
        };
        record(tx, id, Some(from.status), to.status, reason, at)?;
        tx.changed(Change::Project(row.project));
    }
    tx.changed(Change::Sandbox(id));
    Ok(true)
}

fn record(
    tx: &Tx<'_>,
    id: SandboxId,
    from: Option<Status>,
    to: Status,
    reason: Option<&str>,
    at: Timestamp,
) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO transitions (sandbox, seq, from_status, to_status, reason, at)
         VALUES (:sandbox, (SELECT COUNT(*) FROM transitions WHERE sandbox = :sandbox), :from, :to, :reason, :at)",
        named_params! {
            ":sandbox": id.to_string(), ":from": from.map(Status::code), ":to": to.code(), ":reason": reason,
            ":at": at.millis(),
        },
    )?;
    Ok(())
}

/// A sandbox's changes of status, oldest first.
pub fn transitions(connection: &Connection, id: SandboxId) -> Result<Vec<TransitionRow>, Error> {
    let mut statement = connection.prepare_cached("SELECT * FROM transitions WHERE sandbox = :sandbox ORDER BY seq")?;
    let rows = statement.query_map(named_params! { ":sandbox": id.to_string() }, |row| {
        Ok(TransitionRow {
            from: row.get::<_, Option<String>>("from_status")?.as_deref().and_then(Status::from_code),
            to: coded(row, "to_status", Status::from_code)?,
            reason: row.get("reason")?,
            at: Timestamp::from_millis(row.get("at")?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How long it has run until `now`, paused time left out.
pub fn running_time(connection: &Connection, id: SandboxId, now: Timestamp) -> Result<Duration, Error> {
    let total: i64 = connection
        .prepare_cached(
            "SELECT COALESCE(SUM(MAX(COALESCE(ended_at, :now) - started_at, 0)), 0) FROM running_intervals
             WHERE sandbox = :sandbox",
        )?
        .query_row(named_params! { ":sandbox": id.to_string(), ":now": now.millis() }, |row| row.get(0))?;
    Ok(duration(total))
}

/// Sets what the work in hand does now.
pub fn set_step(tx: &Tx<'_>, id: SandboxId, step: Option<&str>) -> Result<(), Error> {
    tx.prepare_cached("UPDATE sandboxes SET step = :step WHERE id = :id")?
        .execute(named_params! { ":id": id.to_string(), ":step": step })?;
    tx.changed(Change::Sandbox(id));
    Ok(())
}

/// Says how far making the sandbox is; nothing once it is made, however late that is written.
pub fn set_making(tx: &Tx<'_>, id: SandboxId, step: &str) -> Result<(), Error> {
    let changed = tx
        .prepare_cached("UPDATE sandboxes SET step = :step WHERE id = :id AND status = 'creating'")?
        .execute(named_params! { ":id": id.to_string(), ":step": step })?;
    if changed == 1 {
        tx.changed(Change::Sandbox(id));
    }
    Ok(())
}

/// Sets the one line of what happens now.
pub fn set_headline(tx: &Tx<'_>, id: SandboxId, headline: &str) -> Result<(), Error> {
    let changed = tx
        .prepare_cached("UPDATE sandboxes SET headline = :headline WHERE id = :id AND headline <> :headline")?
        .execute(named_params! { ":id": id.to_string(), ":headline": headline })?;
    if changed == 1 {
        tx.changed(Change::Sandbox(id));
    }
    Ok(())
}

/// What is known of a sandbox once it is provisioned.
#[derive(Clone, Debug)]
pub struct Provisioned {
    pub provider_id: String,
    pub agent_version: Option<String>,
    pub billed_to: Option<String>,
    pub is_key_inside: bool,
    pub base_commit: String,
    pub limits_enforced: bool,
}

/// Records what provisioning found.
pub fn set_provisioned(tx: &Tx<'_>, id: SandboxId, found: &Provisioned) -> Result<(), Error> {
    tx.execute(
        "UPDATE sandboxes SET provider_id = :provider_id, agent_version = :agent_version, billed_to = :billed_to,
            is_key_inside = :is_key_inside, base_commit = :base_commit, limits_enforced = :limits_enforced WHERE id = :id",
        named_params! {
            ":id": id.to_string(), ":provider_id": found.provider_id, ":agent_version": found.agent_version,
            ":billed_to": found.billed_to, ":is_key_inside": found.is_key_inside, ":base_commit": found.base_commit,
            ":limits_enforced": found.limits_enforced,
        },
    )?;
    Ok(())
}

/// Records whose key a turn has, and where, which may be another one than the turn before had.
pub fn set_key(tx: &Tx<'_>, id: SandboxId, billed_to: Option<&str>, is_key_inside: bool) -> Result<(), Error> {
    tx.execute(
        "UPDATE sandboxes SET billed_to = :billed_to, is_key_inside = :is_key_inside WHERE id = :id",
        named_params! { ":id": id.to_string(), ":billed_to": billed_to, ":is_key_inside": is_key_inside },
    )?;
    tx.changed(Change::Sandbox(id));
    Ok(())
}

/// Says whether there may be work that is in no checkpoint.
pub fn set_unsaved(tx: &Tx<'_>, id: SandboxId, is_unsaved: bool) -> Result<(), Error> {
    let changed = tx.execute(
        "UPDATE sandboxes SET is_unsaved = :is_unsaved WHERE id = :id AND is_unsaved <> :is_unsaved",
        named_params! { ":id": id.to_string(), ":is_unsaved": is_unsaved },
    )?;
    if changed == 1 {
        tx.changed(Change::Sandbox(id));
    }
    Ok(())
}

/// Gives a sandbox more running time, whether it runs or stands still.
pub fn extend(tx: &Tx<'_>, id: SandboxId, by: Duration) -> Result<(), Error> {
    tx.execute(
        "UPDATE sandboxes SET timeout_ms = timeout_ms + :by, expires_at = expires_at + :by,
            remaining_ms = remaining_ms + :by WHERE id = :id",
        named_params! { ":id": id.to_string(), ":by": millis(by) },
    )?;
    tx.changed(Change::Sandbox(id));
    Ok(())
}

/// The clock was set by `millis`: moves every time along that something is still counted from or to.
pub fn move_times(tx: &Tx<'_>, millis: i64) -> Result<(), Error> {
    let by = named_params! { ":by": millis };
    // All of a sandbox's, so that one never lies within another. There and back again: moved one by one in place, one could
    // meet the next before that has moved.
    tx.execute(
        "UPDATE running_intervals SET started_at = -(started_at + :by), ended_at = ended_at + :by
         WHERE sandbox IN (SELECT id FROM sandboxes WHERE status IN ('creating', 'running', 'paused'))",
        by,
    )?;
    tx.execute("UPDATE running_intervals SET started_at = -started_at WHERE started_at < 0", [])?;
    tx.execute("UPDATE turns SET started_at = started_at + :by WHERE ended_at IS NULL", by)?;
    tx.execute(
        "UPDATE sandboxes SET expires_at = expires_at + :by, started_at = started_at + :by
         WHERE status IN ('creating', 'running', 'paused')",
        by,
    )?;
    for row in live(tx)? {
        tx.changed(Change::Sandbox(row.id));
    }
    Ok(())
}

/// Stores the newest session id the agent named (`is_lost`: the stored one is none any more), and how often the agent has
/// crashed in a row.
pub fn set_after_turn(
    tx: &Tx<'_>,
    id: SandboxId,
    session: Option<&str>,
    is_lost: bool,
    crashes: u32,
) -> Result<(), Error> {
    tx.execute(
        "UPDATE sandboxes SET crashes = :crashes,
            agent_session = CASE WHEN :is_lost THEN NULL ELSE COALESCE(:session, agent_session) END WHERE id = :id",
        named_params! { ":id": id.to_string(), ":session": session, ":is_lost": is_lost, ":crashes": crashes },
    )?;
    tx.changed(Change::Sandbox(id));
    Ok(())
}
