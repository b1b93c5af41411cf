//! `projects`: a repository and its defaults.

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::{
    Change, Error, Tx,
    sandboxes::{coded, parsed},
};
use crate::model::{DeliverWhen, ProjectId, Timestamp};

/// A project as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRow {
    pub id: ProjectId,
    pub name: String,
    /// A path or a URL without secrets.
    pub source: String,
    pub remote_url: Option<String>,
    pub default_branch: String,
    pub is_sample: bool,
    /// Sandboxes that are running and not deleted.
    pub active_sandboxes: u32,
    /// Sandboxes that are not deleted.
    pub sandboxes: u32,
    pub created_at: Timestamp,
}

const SELECT: &str = "SELECT *, (SELECT COUNT(*) FROM sandboxes WHERE project = projects.id AND deleted_at IS NULL)
    AS sandboxes FROM projects";

impl TryFrom<&Row<'_>> for ProjectRow {
    type Error = rusqlite::Error;
    fn try_from(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            id: parsed(row, "id")?,
            name: row.get("name")?,
            source: row.get("source")?,
            remote_url: row.get("remote_url")?,
            default_branch: row.get("default_branch")?,
            is_sample: row.get("is_sample")?,
            active_sandboxes: row.get("active_sandboxes")?,
            sandboxes: row.get("sandboxes")?,
            created_at: Timestamp::from_millis(row.get("created_at")?),
        })
    }
}

/// How a project's work is delivered, and whose name its commits bear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectSettings {
    pub deliver: DeliverWhen,
    /// A pull request's title and text are shown before it is made.
    pub is_reviewed_first: bool,
    pub is_draft: bool,
    pub commit_author: Option<String>,
    pub commit_email: Option<String>,
    /// With `{title}` and `{sandbox}` for what they name.
    pub commit_message: Option<String>,
}

/// A project's settings.
pub fn settings(connection: &Connection, id: ProjectId) -> Result<ProjectSettings, Error> {
    connection
        .prepare_cached("SELECT * FROM projects WHERE id = :id")?
        .query_row(named_params! { ":id": id.to_string() }, |row| {
            Ok(ProjectSettings {
                deliver: coded(row, "deliver", DeliverWhen::from_code)?,
                is_reviewed_first: row.get("is_reviewed_first")?,
                is_draft: row.get("is_draft")?,
                commit_author: row.get("commit_author")?,
                commit_email: row.get("commit_email")?,
                commit_message: row.get("commit_message")?,
            })
        })
        .optional()?
        .ok_or(Error::NotFound("project"))
}

/// Changes a project's settings.
pub fn set_settings(tx: &Tx<'_>, id: ProjectId, settings: &ProjectSettings) -> Result<(), Error> {
    let changed = tx.execute(
        "UPDATE projects SET deliver = :deliver, is_reviewed_first = :is_reviewed_first, is_draft = :is_draft,
            commit_author = :commit_author, commit_email = :commit_email, commit_message = :commit_message
         WHERE id = :id",
        named_params! {
            ":id": id.to_string(),
            ":deliver": settings.deliver.code(),
            ":is_reviewed_first": settings.is_reviewed_first,
            ":is_draft": settings.is_draft,
            ":commit_author": settings.commit_author,
            ":commit_email": settings.commit_email,
            ":commit_message": settings.commit_message,
        },
    )?;
    tx.changed(Change::Project(id));
    if changed == 1 { Ok(()) } else { Err(Error::NotFound("project")) }
}

/// Adds a project.
pub fn insert(tx: &Tx<'_>, project: &ProjectRow) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO projects (id, name, source, remote_url, default_branch, is_sample, created_at)
         VALUES (:id, :name, :source, :remote_url, :default_branch, :is_sample, :created_at)",
        named_params! {
            ":id": project.id.to_string(),
            ":name": project.name,
            ":source": project.source,
            ":remote_url": project.remote_url,
            ":default_branch": project.default_branch,
            ":is_sample": project.is_sample,
            ":created_at": project.created_at.millis(),
        },
    )?;
    tx.changed(Change::Project(project.id));
    Ok(())
}

/// Every project, by name.
pub fn all(connection: &Connection) -> Result<Vec<ProjectRow>, Error> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} ORDER BY name COLLATE NOCASE, id"))?;
    let rows = statement.query_map([], |row| ProjectRow::try_from(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// One project.
pub fn get(connection: &Connection, id: ProjectId) -> Result<ProjectRow, Error> {
    connection
        .prepare_cached(&format!("{SELECT} WHERE id = :id"))?
        .query_row(named_params! { ":id": id.to_string() }, |row| ProjectRow::try_from(row))
        .optional()?
        .ok_or(Error::NotFound("project"))
}

/// The project made from this source, if there is one.
pub fn by_source(connection: &Connection, source: &str) -> Result<Option<ProjectRow>, Error> {
    Ok(connection
        .prepare_cached(&format!("{SELECT} WHERE source = :source"))?
        .query_row(named_params! { ":source": source }, |row| ProjectRow::try_from(row))
        .optional()?)
}

/// The counters that differ from a recount (id, stored, counted): each is a defect.
pub fn miscounted(connection: &Connection) -> Result<Vec<(ProjectId, i64, i64)>, Error> {
    let mut statement = connection.prepare(
        "SELECT id, active_sandboxes, (SELECT COUNT(*) FROM sandboxes
            WHERE project = projects.id AND status = 'running' AND deleted_at IS NULL) AS counted FROM projects",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((parsed::<ProjectId>(row, "id")?, row.get::<_, i64>("active_sandboxes")?, row.get::<_, i64>("counted")?))
    })?;
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().filter(|(_, stored, counted)| stored != counted).collect())
}

/// Mends the counters that differ from a recount, and says which they were.
pub fn recount(tx: &Tx<'_>) -> Result<Vec<(ProjectId, i64, i64)>, Error> {
    let wrong = miscounted(tx)?;
    for (id, _, counted) in &wrong {
        tx.execute(
            "UPDATE projects SET active_sandboxes = :counted WHERE id = :id",
            named_params! { ":counted": counted, ":id": id.to_string() },
        )?;
    }
    Ok(wrong)
}
