//! One file: its hunks, or both its texts.

use git2::{DiffLineType, DiffOptions, ObjectType, Oid, Patch, Repository, Tree};

use super::{Between, LARGEST, LINES, SUMMARISED, count_lines, is_binary, is_lfs_pointer};
use crate::work::Error;

/// A line longer than this is cut, in characters.
const LONGEST: usize = 2_000;
/// How many lines of hunks are handed over.
const MOST: usize = 2 * LINES;

/// A file to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// As the list names it.
    pub path: &'a str,
    pub old_path: Option<&'a str>,
    /// How many lines around each change.
    pub context: u32,
    /// Shown though it is large (up to 10 MiB).
    pub although_large: bool,
}

/// How it differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    pub before: Option<Side>,
    pub after: Option<Side>,
    /// `None` for why it is summarised.
    pub hunks: Result<Vec<Hunk>, Why>,
    /// Not all of it is UTF-8: what is not was replaced.
    pub is_lossy: bool,
    /// Lines of hunks that are not handed over.
    pub more_lines: usize,
}

/// One side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// As git writes it: 100644, 100755, 120000 (a link: its text is where it points), 160000 (a submodule).
    pub mode: i32,
    pub id: Oid,
    /// In bytes; a submodule has none.
    pub size: u64,
    pub is_lfs_pointer: bool,
}

/// Why no lines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Binary,
    Submodule,
    /// It can be asked for all the same.
    Large,
    /// It cannot.
    TooLarge,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The first line and how many, on each side.
    pub before: (u32, u32),
    pub after: (u32, u32),
    /// What git shows beside it: the function it is in.
    pub heading: String,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub kind: LineKind,
    /// Its number on each side, where it is there.
    pub before: Option<u32>,
    pub after: Option<u32>,
    /// Without its end.
    pub text: String,
    /// Its end is not shown.
    pub is_cut: bool,
    /// The file ends here, without a line's end.
    pub is_unended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    Context,
    Added,
    Deleted,
}

/// Both texts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    pub before: Option<String>,
    pub after: Option<String>,
    pub is_lossy: bool,
    /// Lines that were cut.
    pub is_cut: bool,
    /// Neither text is there then.
    pub summarised: Option<Why>,
}

/// What there is of a file, read as far as it may be.
struct Read {
    sides: [Option<Side>; 2],
    contents: Result<[Vec<u8>; 2], Why>,
}

pub(super) fn diff(repository: &Repository, between: Between, asked: &Asked<'_>) -> Result<FileDiff, Error> {
    let Read { sides: [before, after], contents } = read(repository, between, asked)?;
    let mut diff = FileDiff { before, after, hunks: Ok(Vec::new()), is_lossy: false, more_lines: 0 };
    match contents {
        Err(why) => diff.hunks = Err(why),
        Ok([old, new]) => {
            diff.is_lossy = [&old, &new].iter().any(|content| std::str::from_utf8(content).is_err());
            let mut options = DiffOptions::new();
            options.context_lines(asked.context).force_text(true).indent_heuristic(true);
            let patch = Patch::from_buffers(&old, None, &new, None, Some(&mut options))?;
            let (hunks, more) = hunks(&patch)?;
            (diff.hunks, diff.more_lines) = (Ok(hunks), more);
        }
    }
    Ok(diff)
}

pub(super) fn texts(repository: &Repository, between: Between, asked: &Asked<'_>) -> Result<Texts, Error> {
    let Read { sides, contents } = read(repository, between, asked)?;
    let mut texts = Texts { before: None, after: None, is_lossy: false, is_cut: false, summarised: None };
    let contents = match contents {
        Ok(contents) => contents,
        Err(why) => return Ok(Texts { summarised: Some(why), ..texts }),
    };
    texts.is_lossy = contents.iter().any(|content| std::str::from_utf8(content).is_err());
    let mut shown = |content: &[u8]| {
        let text = String::from_utf8_lossy(content);
        let lines = text.split_inclusive('\n').map(|line| {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            let (kept, is_cut) = cut(line);
            texts.is_cut |= is_cut;
            [kept, if is_cut { "…" } else { "" }, end].concat()
        });
        lines.collect::<String>()
    };
    let [before, after] = contents.map(|content| shown(&content));
    texts.before = sides[0].map(|_| before);
    texts.after = sides[1].map(|_| after);
    Ok(texts)
}

fn read(repository: &Repository, between: Between, asked: &Asked<'_>) -> Result<Read, Error> {
    let [from, to] = between.trees(repository)?;
    let found = [
        find(repository, from.as_ref(), asked.old_path.unwrap_or(asked.path))?,
        find(repository, to.as_ref(), asked.path)?,
    ];
    if found.iter().all(Option::is_none) {
        return Err(Error::NoSuchFile(asked.path.to_owned()));
    }
    let odb = repository.odb()?;
    let mut sides = [None, None];
    for (side, found) in sides.iter_mut().zip(found) {
        let Some((id, mode, kind)) = found else { continue };
        let size = if kind == ObjectType::Blob { odb.read_header(id)?.0 as u64 } else { 0 };
        *side = Some(Side { mode, id, size, is_lfs_pointer: false });
    }
    let is_submodule = found.iter().flatten().any(|(_, _, kind)| *kind != ObjectType::Blob);
    let largest = sides.iter().flatten().map(|side| side.size).max().unwrap_or(0);
    let too_large = match largest {
        _ if is_submodule => Some(Why::Submodule),
        size if size > LARGEST => Some(Why::TooLarge),
        size if size > SUMMARISED && !asked.although_large => Some(Why::Large),
        _ => None,
    };
    if let Some(why) = too_large {
        return Ok(Read { sides, contents: Err(why) });
    }
    let mut contents = [Vec::new(), Vec::new()];
    for (content, side) in contents.iter_mut().zip(&mut sides) {
        if let Some(side) = side {
            *content = odb.read(side.id)?.data().to_vec();
            side.is_lfs_pointer = is_lfs_pointer(content);
        }
    }
    let has_many = contents.iter().any(|content| count_lines(content) > LINES);
    let why = match () {
        () if contents.iter().any(|content| is_binary(content)) => Some(Why::Binary),
        () if has_many && !asked.although_large => Some(Why::Large),
        () => None,
    };
    Ok(Read { sides, contents: why.map_or(Ok(contents), Err) })
}

/// A file by the name a person sees.
fn find(repository: &Repository, tree: Option<&Tree<'_>>, path: &str) -> Result<Option<(Oid, i32, ObjectType)>, Error> {
    let mut tree = tree.cloned();
    let mut parts = path.split('/').peekable();
    while let (Some(here), Some(part)) = (tree.take(), parts.next()) {
        let named = here.iter().position(|entry| entry.name_bytes() == part.as_bytes());
        let named = named.or_else(|| here.iter().position(|entry| String::from_utf8_lossy(entry.name_bytes()) == part));
        let Some(entry) = named.and_then(|at| here.get(at)) else { return Ok(None) };
        match entry.kind() {
            Some(ObjectType::Tree) if parts.peek().is_some() => tree = Some(repository.find_tree(entry.id())?),
            Some(kind) if kind != ObjectType::Tree && parts.peek().is_none() => {
                return Ok(Some((entry.id(), entry.filemode(), kind)));
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn hunks(patch: &Patch<'_>) -> Result<(Vec<Hunk>, usize), Error> {
    let (mut hunks, mut count, mut more) = (Vec::new(), 0, 0);
    for number in 0..patch.num_hunks() {
        let (found, lines) = patch.hunk(number)?;
        if count >= MOST {
            more += lines;
            continue;
        }
        let header = String::from_utf8_lossy(found.header());
        let heading = header.splitn(3, "@@").nth(2).unwrap_or_default().trim();
        let mut hunk = Hunk {
            before: (found.old_start(), found.old_lines()),
            after: (found.new_start(), found.new_lines()),
            heading: cut(heading).0.to_owned(),
            lines: Vec::new(),
        };
        for at in 0..lines {
            if count >= MOST {
                more += lines - at;
                break;
            }
            let line = patch.line_in_hunk(number, at)?;
            let kind = match line.origin_value() {
                DiffLineType::Context => LineKind::Context,
                DiffLineType::Addition => LineKind::Added,
                DiffLineType::Deletion => LineKind::Deleted,
                // What git prints where a file ends without a line's end: it belongs to the line before.
                _ => {
                    if let Some(last) = hunk.lines.last_mut() {
                        last.is_unended = true;
                    }
                    continue;
                }
            };
            let text = String::from_utf8_lossy(line.content());
            let (text, is_cut) = cut(text.strip_suffix('\n').unwrap_or(&text));
            let (before, after) = (line.old_lineno(), line.new_lineno());
            hunk.lines.push(Line { kind, before, after, text: text.to_owned(), is_cut, is_unended: false });
            count += 1;
        }
        hunks.push(hunk);
    }
    Ok((hunks, more))
}

fn cut(text: &str) -> (&str, bool) {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}
