//! The changes between two checkpoints: which files, and one file's lines.

use std::fmt::Write as _;

use courier_engine::{
    engine::Engine,
    model::CheckpointId,
    work::changes::{self, FileDiff, Kind, LineKind, Texts, Why},
};
use serde::Serialize;
use specta::Type;
use tauri::State;

use super::error::{IpcError, id};

/// What became of a file.
#[derive(Clone, Copy, Debug, Serialize, Type)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    TypeChanged,
    Mode,
}

impl From<Kind> for ChangeKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Added => Self::Added,
            Kind::Modified => Self::Modified,
            Kind::Deleted => Self::Deleted,
            Kind::Renamed => Self::Renamed,
            Kind::TypeChanged => Self::TypeChanged,
            Kind::Mode => Self::Mode,
        }
    }
}

/// One file that differs.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    path: String,
    old_path: Option<String>,
    kind: ChangeKind,
    added: u32,
    removed: u32,
    is_binary: bool,
    size_before: u64,
    size_after: u64,
    is_lfs: bool,
    is_submodule: bool,
}

/// Which files differ between two checkpoints.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    files: Vec<ChangedFile>,
    /// How many more there are, not listed.
    more: usize,
    added: u64,
    removed: u64,
}

impl From<changes::Changes> for Changes {
    fn from(changes: changes::Changes) -> Self {
        let files = changes.files.into_iter().map(|file| ChangedFile {
            path: file.path,
            old_path: file.old_path,
            kind: file.kind.into(),
            added: file.additions.unwrap_or(0),
            removed: file.deletions.unwrap_or(0),
            is_binary: file.is_binary,
            size_before: file.size_before.unwrap_or(0),
            size_after: file.size_after.unwrap_or(0),
            is_lfs: file.is_lfs_pointer,
            is_submodule: file.is_submodule,
        });
        Self { files: files.collect(), more: changes.more, added: changes.additions, removed: changes.deletions }
    }
}

/// One file's change: hunks without a file header, and both texts where they are not too large.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    path: String,
    patch: String,
    before: Option<String>,
    after: Option<String>,
    /// Why there is no patch, or that it was cut.
    note: Option<String>,
    is_huge: bool,
}

impl FileChange {
    fn new(path: String, diff: &FileDiff, texts: Texts) -> Self {
        let mut notes = Vec::new();
        if diff.is_lossy {
            notes.push("Not all of it is UTF-8; what is not is shown as \u{fffd}.".to_owned());
        }
        if diff.more_lines > 0 {
            notes.push(format!("{} more lines are not shown.", diff.more_lines));
        }
        let mut patch = String::new();
        match &diff.hunks {
            Ok(hunks) => hunks.iter().for_each(|hunk| write_hunk(&mut patch, hunk)),
            Err(why) => notes.push(
                match why {
                    Why::Binary => "It is binary.",
                    Why::Submodule => "It is a submodule.",
                    Why::Large => "It is large.",
                    Why::TooLarge => "It is too large to be shown.",
                }
                .to_owned(),
            ),
        }
        if texts.is_cut {
            notes.push("Long lines were cut.".to_owned());
        }
        Self {
            path,
            patch,
            before: texts.before,
            after: texts.after,
            note: (!notes.is_empty()).then(|| notes.join(" ")),
            is_huge: diff.hunks.as_ref().is_err_and(|why| *why == Why::Large),
        }
    }
}

/// As a unified diff writes it.
fn write_hunk(patch: &mut String, hunk: &changes::Hunk) {
    let ((from, removed), (to, added)) = (hunk.before, hunk.after);
    let heading = if hunk.heading.is_empty() { String::new() } else { format!(" {}", hunk.heading) };
    // Writing to a string cannot fail.
    _ = writeln!(patch, "@@ -{from},{removed} +{to},{added} @@{heading}");
    for line in &hunk.lines {
        let sign = match line.kind {
            LineKind::Context => ' ',
            LineKind::Added => '+',
            LineKind::Deleted => '-',
        };
        let cut = if line.is_cut { "…" } else { "" };
        // A carriage return alone would begin a line of its own.
        _ = writeln!(patch, "{sign}{}{cut}", line.text.replace('\r', "\u{240d}"));
        if line.is_unended {
            patch.push_str("\\ No newline at end of file\n");
        }
    }
}

/// Which files differ between two checkpoints. `from` null: where it began; `to` null: the newest.
#[tauri::command]
#[specta::specta]
pub async fn changes(
    engine: State<'_, Engine>,
    sandbox: String,
    from: Option<String>,
    to: Option<String>,
) -> Result<Changes, IpcError> {
    let (from, to) = range(from.as_deref(), to.as_deref())?;
    Ok(engine.changes(id(&sandbox)?, from, to).await?.into())
}

/// What changed in one file, `old_path` being where it was; `is_forced` also where it is huge.
#[tauri::command]
#[specta::specta]
pub async fn changes_file(
    engine: State<'_, Engine>,
    sandbox: String,
    from: Option<String>,
    to: Option<String>,
    path: String,
    old_path: Option<String>,
    is_forced: bool,
) -> Result<FileChange, IpcError> {
    let range = range(from.as_deref(), to.as_deref())?;
    let (diff, texts) = engine.changes_file(id(&sandbox)?, range, (path.clone(), old_path), is_forced).await?;
    Ok(FileChange::new(path, &diff, texts))
}

/// All of it as one patch.
#[tauri::command]
#[specta::specta]
pub async fn changes_patch(
    engine: State<'_, Engine>,
    sandbox: String,
    from: Option<String>,
    to: Option<String>,
) -> Result<String, IpcError> {
    let (from, to) = range(from.as_deref(), to.as_deref())?;
    let patch = engine.changes_patch(id(&sandbox)?, from, to).await?;
    Ok(String::from_utf8_lossy(&patch.text).into_owned())
}

fn range(from: Option<&str>, to: Option<&str>) -> Result<(Option<CheckpointId>, Option<CheckpointId>), IpcError> {
    Ok((from.map(id).transpose()?, to.map(id).transpose()?))
}
