//! The clone of a sandbox whose files are on another machine: how it is sent there, and how its working tree comes back.
//!
//! Git does both there, in scripts that are run as the agent, and what it makes of them is as hostile as everything else
//! that comes out of a sandbox: the working tree leaves as a commit in a bundle, which is checked like the agent's own
//! commits (`courier_checkpoint::bring`) before [`record`] makes a checkpoint of its tree.

mod record;
mod shipment;
#[cfg(test)]
mod tests;

pub use record::{Recording, record};
pub use shipment::Shipment;

use git2::Oid;

use super::bundle::quoted;

/// Where everything of ours is there, beneath the agent's home.
const OWN: &str = ".courier";
/// Stands before each line that is meant.
const MARK: &str = "courier-import";
/// A file that is larger is not taken into a checkpoint, in megabytes.
const LARGEST_MB: u64 = 100;
/// The most a bundle may take, in blocks of 512 bytes: 2 GiB.
const BLOCKS: u64 = (2 << 30) / 512;
/// The most paths that are named as left out.
const LISTED: usize = 1000;

/// What every script begins with: nothing of the agent's configuration counts.
const CLEAN: &str = r"export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_TERMINAL_PROMPT=0
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR GIT_NAMESPACE
";

/// What the clone is to be.
#[derive(Clone, Debug)]
pub struct Clone<'a> {
    /// Where it is to be, there.
    pub workspace: &'a str,
    /// Where the pack was put, there; it is removed.
    pub pack: &'a str,
    /// The branch the work starts from, and its commit.
    pub base: (&'a str, Oid),
    /// The branch the work is done on.
    pub branch: &'a str,
    /// Where the repository comes from, for the agent to read.
    pub origin: &'a str,
    pub shipment: &'a Shipment,
}

impl Clone<'_> {
    /// The script that makes it. Run again, it finds the one that is whole.
    pub fn script(&self) -> String {
        let (workspace, pack) = (quoted(self.workspace), quoted(self.pack));
        let (base, commit) = self.base;
        let (origin, from) = (quoted(self.origin), quoted(&format!("refs/remotes/origin/{base}")));
        let branch = quoted(&format!("refs/heads/{}", self.branch));
        let Shipment { head, tree, shallow, .. } = self.shipment;
        let shallow: String = shallow.iter().map(|id| format!(" {id}")).collect();
        format!(
            r#"{CLEAN}own="$HOME/{OWN}"; ws={workspace}
say() {{ printf '\n{MARK} %s\n' "$*"; }}
failed() {{ say failed "$1"; exit 1; }}
[ -e "$own/whole" ] && [ -d "$ws" ] && {{ say whole; exit 0; }}
command -v git >/dev/null 2>&1 || failed no-git
rm -rf -- "$own" "$ws" && mkdir -p -- "$own" "$ws" || failed room
git init --quiet --bare --template= "$own/base.git" >/dev/null || failed git
for id in{shallow}; do printf '%s\n' "$id"; done >"$own/shallow"
[ -s "$own/shallow" ] && cp "$own/shallow" "$own/base.git/shallow"
git --git-dir="$own/base.git" index-pack --stdin <{pack} >/dev/null || failed pack
rm -f -- {pack}
cd -- "$ws" && git init --quiet . >/dev/null || failed git
printf '%s\n' "$own/base.git/objects" >.git/objects/info/alternates || failed room
[ -s "$own/shallow" ] && cp "$own/shallow" .git/shallow
git update-ref {from} {commit} && git update-ref {branch} {head} && git symbolic-ref HEAD {branch} || failed refs
git config remote.origin.url {origin} && git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' || failed git
git config user.name CodeCourier && git config user.email agent@codecourier.invalid || failed git
git read-tree {tree} && git checkout-index --all --force --quiet || failed files
git read-tree {head} && {{ git update-index -q --refresh >/dev/null 2>&1 || true; }} || failed files
git init --quiet --bare --template= "$own/tree.git" >/dev/null || failed git
printf '%s\n' "$own/base.git/objects" >"$own/tree.git/objects/info/alternates" || failed room
[ -s "$own/shallow" ] && cp "$own/shallow" "$own/tree.git/shallow"
export GIT_DIR="$own/tree.git" GIT_INDEX_FILE="$own/index" GIT_WORK_TREE="$ws"
git config core.bare false && git read-tree {tree} || failed tree
git update-index -q --refresh >/dev/null 2>&1
: >"$own/whole" && say whole
"#
        )
    }
}

/// What the script that makes a clone says.
///
/// # Errors
/// What failed, for a person.
pub fn is_whole(printed: &[u8]) -> Result<(), &'static str> {
    let text = String::from_utf8_lossy(&printed[printed.len().saturating_sub(4096)..]);
    let last = text.lines().filter_map(|line| line.strip_prefix(MARK)?.strip_prefix(' ')).next_back();
    Err(match last {
        Some("whole") => return Ok(()),
        Some("failed no-git") => "there is no git in its template",
        Some("failed room") => "there is no room in its home",
        Some("failed pack" | "failed tree" | "failed refs") => "the repository did not arrive whole",
        Some("failed files") => "a file could not be written",
        _ => "the sandbox did not answer",
    })
}

/// The script that makes a commit of the whole working tree, untracked files included and ignored ones not, and a bundle of
/// it at `out`. What it says is read by [`super::bundle::Told::parse`] and [`left_out`].
///
/// It needs nothing of the agent's repository, which may be damaged or gone. `known`: commits that are there and here.
pub fn snapshot(workspace: &str, known: &[Oid], out: &str) -> String {
    let (workspace, out) = (quoted(workspace), quoted(out));
    let known: String = known.iter().map(|id| format!(" {id}")).collect();
    let mark = super::bundle::MARK;
    format!(
        r#"{CLEAN}own="$HOME/{OWN}"; out={out}
say() {{ printf '\n{mark} %s\n' "$*"; }}
rm -rf -- "$out" "$out.lock"
command -v git >/dev/null 2>&1 || {{ say no-git; exit 0; }}
cd -- {workspace} || {{ say no-folder; exit 0; }}
mkdir -p -- "$own"
git --git-dir="$own/tree.git" rev-parse --git-dir >/dev/null 2>&1 || {{
  rm -rf -- "$own/tree.git" "$own/index"
  git init --quiet --bare --template= "$own/tree.git" >/dev/null
}}
export GIT_DIR="$own/tree.git" GIT_INDEX_FILE="$own/index" GIT_WORK_TREE="$PWD"
git config core.bare false
rm -f -- "$own"/index.lock "$own"/tree.git/*.lock
export GIT_AUTHOR_NAME=CodeCourier GIT_AUTHOR_EMAIL=agent@codecourier.invalid GIT_AUTHOR_DATE='@0 +0000'
export GIT_COMMITTER_NAME=CodeCourier GIT_COMMITTER_EMAIL=agent@codecourier.invalid GIT_COMMITTER_DATE='@0 +0000'
g() {{ git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.excludesFile=/dev/null -c core.fileMode=true -c core.symlinks=true -c core.autocrlf=false -c gc.auto=0 -c advice.addEmbeddedRepo=false -c pack.packSizeLimit=0 "$@"; }}
# Git waits for ever for a pipe that is called like one of its files.
find . -type p \( -name .gitignore -o -name .gitattributes \) -exec rm -f -- {{}} + 2>/dev/null
find . -path ./.git -prune -o -type f -size +{LARGEST_MB}M -print0 2>/dev/null >"$own/large"
if [ -s "$own/large" ]; then
  {{ printf '.\0'; sed -z 's|^\./|:(exclude,literal,top)|' "$own/large"; }} >"$own/paths"
  g add -A --ignore-errors --pathspec-from-file="$own/paths" --pathspec-file-nul >/dev/null 2>&1
  head -n {LISTED} -z "$own/large" | while IFS= read -r -d '' path; do say large "$(printf %s "${{path#./}}" | base64 -w0)"; done
else
  g add -A --ignore-errors . >/dev/null 2>&1
fi
tree=$(g write-tree 2>/dev/null) || {{ say broken; exit 0; }}
set --; not=
for id in{known}; do g cat-file -e "$id^{{commit}}" 2>/dev/null && {{ set -- "$@" -p "$id"; not="$not ^$id"; }}; done
last=$(g rev-parse -q --verify 'refs/heads/snapshot^{{commit}}' 2>/dev/null)
case "{known} " in *" $last "*) [ -n "$last" ] && [ "$(g rev-parse "$last^{{tree}}")" = "$tree" ] && {{ say head "$last"; say known; exit 0; }};; esac
commit=$(printf 'The working tree\n' | g commit-tree "$tree" "$@" 2>/dev/null) || {{ say broken; exit 0; }}
g update-ref refs/heads/snapshot "$commit" && g symbolic-ref HEAD refs/heads/snapshot || {{ say broken; exit 0; }}
say head "$commit"
if (ulimit -f {BLOCKS} && g bundle create -q "$out" HEAD $not) >/dev/null 2>&1; then say bundle; else rm -f -- "$out" "$out.lock"; say broken; fi
"#
    )
}

/// The paths a snapshot left out since they are too large, as far as they are named.
pub fn left_out(printed: &[u8]) -> Vec<String> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let mark = format!("{} large ", super::bundle::MARK);
    let named = printed.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(mark.as_bytes()));
    let path = |text: &[u8]| Some(String::from_utf8_lossy(&BASE64_STANDARD.decode(text).ok()?).into_owned());
    named.filter_map(path).take(LISTED).collect()
}
