//! A life's folder, and what must be true in it: after every kill, and in the end.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use courier_engine::model::{Ending, Reason, Status};
use courier_keeper::spool;
use courier_test_support::processes;
use tempfile::TempDir;

use super::{
    super::audit::{Audit, Picture, TurnView},
    app::{self, Plan},
};

/// How long the last process may take to be gone once the app says that it is.
const GONE: Duration = Duration::from_secs(3);

/// A data folder, and the journal beside it.
pub struct Folder {
    folder: TempDir,
    pub plan: Plan,
    /// A keeper may be killed here.
    is_rough: bool,
    audit: Option<Audit>,
    name: String,
}

impl Folder {
    pub fn new(plan: Plan, is_rough: bool, name: String) -> Self {
        let folder = TempDir::new().unwrap();
        Self { folder, plan, is_rough, audit: None, name }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the app's own words go.
    pub fn words(&self) -> File {
        File::create(self.path().join("words")).unwrap()
    }

    pub fn last_words(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path().join(name)).unwrap_or_default();
        let mut words = format!("{}\n{}", read("journal"), read("words"));
        for directory in self.sandboxes() {
            let log = fs::read_to_string(directory.join(spool::LOG)).unwrap_or_default();
            words += &format!("keeper lives: {:?}\n{log}", spool::is_locked(&directory));
        }
        let database = self.path().join("data/courier.db");
        if Audit::has_tables(&database) {
            words += &format!("{:#?}", Audit::of(&database).look());
        }
        words
    }

    /// What the app did last.
    pub fn last_step(&self) -> String {
        self.journal().last().map_or_else(
            || "start".to_owned(),
            |line| {
                let words: String = line.chars().filter(|character| !character.is_ascii_digit()).collect();
                words.trim_end().to_owned()
            },
        )
    }

    fn journal(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join("journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn sandboxes(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.path().join("data/sandboxes")).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect()
    }

    /// The rows, and what is wrong with them; `None` before there are any.
    fn look(&mut self) -> Option<(Picture, Vec<String>)> {
        let database = self.path().join("data/courier.db");
        let has_tables = self.audit.is_some() || Audit::has_tables(&database);
        if !has_tables {
            return None;
        }
        let mut audit = match self.audit.take() {
            None => Audit::of(&database),
            Some(audit) => audit.again(&database),
        };
        let seen = audit.look();
        // No connection stays open: the app's must be able to be the last one.
        self.audit = Some(audit.closed());
        Some(seen)
    }

    /// What must hold while nobody runs the app.
    pub fn judge(&mut self) {
        let Some((picture, mut problems)) = self.look() else { return };
        self.messages(&picture, &mut problems);
        for turn in &picture.turns {
            self.log(turn, &picture, &mut problems);
        }
        self.demand(&problems, &picture);
    }

    fn demand(&self, problems: &[String], picture: &Picture) {
        assert!(
            problems.is_empty(),
            "{}\n{}\nPROBLEM {}\n{:?}",
            self.name,
            self.last_words(),
            problems.join("\n"),
            picture.sandboxes
        );
    }

    /// What must hold once the script is done. Returns how many turns there were and how much they printed.
    pub fn judge_the_end(&mut self) -> (u64, u64) {
        let (picture, mut problems) = self.look().expect("there was a life");
        self.messages(&picture, &mut problems);
        let [sandbox] = picture.sandboxes.as_slice() else { panic!("{}: {:?}", self.name, picture.sandboxes) };
        let is = sandbox.lifecycle;
        let is_right = match is.ending {
            Some(Ending::Killed(Reason::Stopped)) => true,
            Some(Ending::Killed(Reason::Lost)) => self.is_rough,
            _ => false,
        };
        if is.status != Status::Killed || !is_right {
            problems.push(format!("the sandbox is {is:?}: {:?}", sandbox.error));
        }
        for turn in &picture.turns {
            if turn.end.is_none() {
                problems.push(format!("turn {} is open", turn.id));
            }
            self.log(turn, &picture, &mut problems);
            self.spool(turn, &mut problems);
        }
        self.runs(&picture, &mut problems);
        self.nothing_left(&mut problems);
        self.demand(&problems, &picture);
        let printed = picture.turns.iter().map(|turn| turn.out.len() + turn.err.len()).sum::<usize>();
        (picture.turns.len() as u64, printed as u64)
    }

    /// What was accepted is there once; what was asked for and not answered at most once; nothing else.
    fn messages(&self, picture: &Picture, problems: &mut Vec<String>) {
        let journal = self.journal();
        let mut known = HashSet::new();
        for name in journal.iter().filter_map(|line| line.strip_prefix("ask ")) {
            let content = self.plan.message(name);
            let count = picture.messages.iter().filter(|message| message.content == content).count();
            let is_accepted = journal.iter().any(|line| line.strip_prefix("ok ") == Some(name));
            if count > 1 || (is_accepted && count == 0) {
                problems.push(format!("message {name} is there {count} times; accepted: {is_accepted}"));
            }
            known.insert(content);
        }
        for message in picture.messages.iter().filter(|message| message.role == "user") {
            if !known.contains(&message.content) {
                problems.push(format!("nobody asked for {:?}", message.content));
            }
        }
    }

    /// The raw log is what the agent printed; whole, where it ended by itself.
    fn log(&self, turn: &TurnView, picture: &Picture, problems: &mut Vec<String>) {
        let (out, err) = self.plan.printed(&self.name_of(turn, picture));
        let ended_well = matches!(turn.end, Some((_, Some(0), None)));
        let is_whole = turn.out == out && turn.err == err;
        // One that was ended in the middle of its token has printed no token.
        let begin = turn.out.strip_suffix(app::half_of_secret()).unwrap_or(&turn.out);
        let is_begin = out.starts_with(begin) && err.starts_with(&turn.err);
        if (ended_well && !is_whole) || !is_begin {
            problems.push(format!(
                "turn {} ended as {:?} {:?}; its log: {:?}",
                turn.number,
                turn.end,
                turn.error_kind,
                String::from_utf8_lossy(&turn.out)
            ));
        }
        // Nothing but the end of its sandbox ends an agent that does no wrong.
        if turn.end.is_some() && !ended_well && !self.is_rough && !self.plan.stops_in_mid_turn {
            problems.push(format!(
                "turn {} was not let work to its end: {:?} {:?}",
                turn.number, turn.end, turn.error_kind
            ));
        }
    }

    fn name_of(&self, turn: &TurnView, picture: &Picture) -> String {
        let content = picture.message(&turn.message).map(|message| message.content.clone()).unwrap_or_default();
        let journal = self.journal();
        let mut asked = journal.iter().filter_map(|line| line.strip_prefix("ask "));
        asked.find(|name| self.plan.message(name) == content).unwrap_or_default().to_owned()
    }

    /// The log holds every byte of the spool.
    fn spool(&self, turn: &TurnView, problems: &mut Vec<String>) {
        for directory in self.sandboxes() {
            let place = spool::turn_directory(&directory, &turn.id);
            if !place.exists() {
                if turn.error_kind.is_none() {
                    problems.push(format!("turn {} has no spool", turn.number));
                }
                continue;
            }
            let exit = spool::read_exit(&place).unwrap();
            for (name, log, end) in [
                (spool::OUT, &turn.out, exit.map(|exit| exit.out_len)),
                (spool::ERR, &turn.err, exit.map(|exit| exit.err_len)),
            ] {
                let mut bytes = fs::read(place.join(name)).unwrap_or_default();
                bytes.truncate(end.map_or(usize::MAX, |end| usize::try_from(end).unwrap()));
                if bytes != *log {
                    problems.push(format!(
                        "turn {}: {name} has {} bytes, the log {}",
                        turn.number,
                        bytes.len(),
                        log.len()
                    ));
                }
            }
        }
    }

    /// Each message's script ran once.
    fn runs(&self, picture: &Picture, problems: &mut Vec<String>) {
        for directory in self.sandboxes() {
            let text = fs::read_to_string(directory.join("workspace/ran")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            if lines.len() != lines.iter().collect::<HashSet<_>>().len() {
                problems.push(format!("a message was given twice: {lines:?}"));
            }
            for turn in picture.turns.iter().filter(|turn| turn.error_kind.is_none()) {
                let name = format!("{} ✓", self.name_of(turn, picture));
                if !lines.contains(&name.as_str()) {
                    problems.push(format!("{name} never ran: {lines:?}"));
                }
            }
        }
    }

    fn nothing_left(&self, problems: &mut Vec<String>) {
        let marker = self.path().to_str().expect("a path that is text");
        let deadline = Instant::now() + GONE;
        let mut left = processes::mentioning(marker);
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            left = processes::mentioning(marker);
        }
        if !left.is_empty() {
            problems.push(format!("left running: {left:?}"));
        }
        for directory in self.sandboxes() {
            if spool::is_locked(&directory).unwrap() {
                problems.push("a keeper's lock is held".to_owned());
            }
            // One that is killed cannot take its socket with it.
            if !self.is_rough && directory.join("keeper.sock").exists() {
                problems.push("a keeper's socket is left".to_owned());
            }
        }
        let secret = app::SECRET.as_bytes();
        for file in files(&self.path().join("data")) {
            if fs::read(&file).unwrap_or_default().windows(secret.len()).any(|window| window == secret) {
                problems.push(format!("the token lies in {}", file.display()));
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Also after a failure nothing stays.
        let marker = self.path().to_string_lossy().into_owned();
        processes::kill_all(|| processes::mentioning(&marker));
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
