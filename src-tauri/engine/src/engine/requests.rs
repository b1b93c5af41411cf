//! What a person may ask for, checked before anything is stored.

use std::time::Duration;

use super::Error;
use crate::{
    model::{AgentKind, CheckpointId, NetworkMode, OnTimeout, ProjectId, ProviderKind, SandboxId},
    work,
};

pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
pub(crate) const DEFAULT_CPUS: u32 = 2;
/// The longest running time.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The longest message, in bytes.
const LONGEST_MESSAGE: usize = 4 << 20;
/// The longest title, in characters.
const LONGEST_TITLE: usize = 200;
/// How much of a message becomes a title, in characters.
const TITLE: usize = 80;

/// A sandbox to make.
#[derive(Clone, Debug)]
pub struct NewSandbox {
    pub project: ProjectId,
    /// The first message.
    pub prompt: String,
    /// Taken from the message where there is none.
    pub title: Option<String>,
    pub agent: AgentKind,
    pub model: Option<String>,
    pub provider: ProviderKind,
    pub timeout: Duration,
    pub on_timeout: OnTimeout,
    pub memory_mb: u32,
    pub cpus: u32,
    pub network: NetworkMode,
    pub allowed_hosts: Vec<String>,
    /// The project's default branch where there is none.
    pub base_branch: Option<String>,
    /// `courier/…` where there is none.
    pub branch: Option<String>,
    pub setup_script: Option<String>,
    pub variables: Vec<(String, String)>,
    pub parent: Option<SandboxId>,
    /// The checkpoint it begins from.
    pub begin: Option<CheckpointId>,
    /// It begins with what the person has not committed in the project's folder.
    pub includes_uncommitted: bool,
    /// The issue it is made from: number and URL.
    pub issue: Option<(u64, String)>,
}

/// How much memory a sandbox for this agent gets when nothing else is said.
pub(crate) fn memory_of(kind: AgentKind) -> u32 {
    crate::agent::agent(kind).map_or(1024, crate::agent::Agent::memory_mb)
}

/// What happens to a message while a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendHow {
    /// It waits for the turn's end.
    Queue,
    /// The turn is ended, and it is next.
    Interrupt,
}

impl NewSandbox {
    /// A sandbox with every default.
    pub fn of(project: ProjectId, agent: AgentKind, prompt: &str) -> Self {
        Self {
            project,
            prompt: prompt.to_owned(),
            title: None,
            agent,
            model: None,
            provider: ProviderKind::Local,
            timeout: DEFAULT_TIMEOUT,
            on_timeout: OnTimeout::Kill,
            memory_mb: memory_of(agent),
            cpus: DEFAULT_CPUS,
            network: NetworkMode::Open,
            allowed_hosts: Vec::new(),
            base_branch: None,
            branch: None,
            setup_script: None,
            variables: Vec::new(),
            parent: None,
            begin: None,
            includes_uncommitted: false,
            issue: None,
        }
    }

    pub(super) fn checked(mut self) -> Result<Self, Error> {
        self.prompt = check_message(&self.prompt)?;
        self.title = blank(self.title).map(|title| check_title(&title)).transpose()?;
        self.model = blank(self.model);
        self.base_branch = blank(self.base_branch);
        self.branch = blank(self.branch);
        self.setup_script = self.setup_script.filter(|script| !script.trim().is_empty());
        if let Some(branch) = &self.branch {
            work::check_branch(branch)?;
        }
        if self.model.as_ref().is_some_and(|model| model.len() > 200 || model.starts_with('-') || has_control(model)) {
            return Err(Error::invalid("the model's name is not one".to_owned()));
        }
        if self.timeout.is_zero() || self.timeout > LONGEST_TIMEOUT {
            return Err(Error::invalid("the timeout must be between a moment and 7 days".to_owned()));
        }
        if !(64..=1 << 20).contains(&self.memory_mb) {
            return Err(Error::invalid("memory must be between 64 MB and 1 TB".to_owned()));
        }
        if !(1..=1024).contains(&self.cpus) {
            return Err(Error::invalid("a sandbox needs between 1 and 1,024 CPUs".to_owned()));
        }
        if self.issue.as_ref().is_some_and(|(number, url)| {
            *number == 0 || url.len() > 2_000 || has_control(url) || !(url.is_empty() || url.starts_with("https://"))
        }) {
            return Err(Error::invalid("an issue is its number and its https:// address".to_owned()));
        }
        for (name, value) in &self.variables {
            check_variable(name, value)?;
        }
        self.allowed_hosts = self.allowed_hosts.iter().map(|host| check_host(host)).collect::<Result<_, _>>()?;
        Ok(self)
    }
}

fn blank(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// A message as it is stored and given to the agent: exactly what was written.
pub(super) fn check_message(text: &str) -> Result<String, Error> {
    if text.trim().is_empty() {
        return Err(Error::invalid("the message is empty".to_owned()));
    }
    if text.contains('\0') {
        return Err(Error::invalid("the message holds a NUL character, which no agent takes".to_owned()));
    }
    if text.len() > LONGEST_MESSAGE {
        return Err(Error::invalid(format!(
            "the message has {} MB; at most {} are taken (put the rest in a file of the repository)",
            text.len() >> 20,
            LONGEST_MESSAGE >> 20
        )));
    }
    Ok(text.to_owned())
}

fn check_title(title: &str) -> Result<String, Error> {
    let length = title.chars().count();
    if length > LONGEST_TITLE {
        return Err(Error::invalid(format!("the title has {length} characters; at most {LONGEST_TITLE} are taken")));
    }
    if has_control(title) {
        return Err(Error::invalid("the title must be one line".to_owned()));
    }
    Ok(title.to_owned())
}

/// A project's name.
pub(super) fn check_name(name: &str) -> Result<String, Error> {
    check_title(name)
}

/// A title made from a message: the beginning of its first line with something in it.
pub(super) fn title_of(message: &str) -> String {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Untitled");
    let clean: String = line.chars().filter(|character| !character.is_control()).collect();
    if clean.chars().count() <= TITLE {
        return clean;
    }
    let cut: String = clean.chars().take(TITLE - 1).collect();
    format!("{}…", cut.trim_end())
}

fn check_variable(name: &str, value: &str) -> Result<(), Error> {
    let is_name = name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
        && name.chars().next().is_some_and(|first| !first.is_ascii_digit());
    if !is_name {
        return Err(Error::invalid(format!("{name:?} is not a variable's name")));
    }
    if value.contains('\0') {
        return Err(Error::invalid(format!("the value of {name} holds a NUL character")));
    }
    Ok(())
}

/// `host`, `host:port` or `*.host`.
fn check_host(text: &str) -> Result<String, Error> {
    let host = text.trim().to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let is_host = !name.is_empty()
        && name.chars().all(|character| character.is_alphanumeric() || ".-_:[]".contains(character))
        && !name.starts_with(['.', '-']);
    if is_host {
        Ok(host)
    } else {
        Err(Error::invalid(format!("{text:?} is not a host (write example.org, *.example.org or example.org:8443)")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_beginning_of_what_was_said() {
        assert_eq!(title_of("\n\n  Mend the parser\nplease"), "Mend the parser");
        assert_eq!(title_of(&"é".repeat(500)).chars().count(), TITLE);
        assert_eq!(title_of("שלום עולם 👩‍💻"), "שלום עולם 👩‍💻");
    }

    #[test]
    fn bad_input_is_named() {
        let new = NewSandbox::of(ProjectId::fresh(), AgentKind::Shell, "true");
        let says = |new: NewSandbox| new.checked().unwrap_err().to_string();
        assert_eq!(says(NewSandbox { prompt: " \n".into(), ..new.clone() }), "the message is empty");
        assert!(says(NewSandbox { prompt: "a\0b".into(), ..new.clone() }).contains("NUL"));
        assert!(says(NewSandbox { title: Some("x".repeat(10_000)), ..new.clone() }).contains("10000 characters"));
        assert!(says(NewSandbox { branch: Some("a..b".into()), ..new.clone() }).contains("a..b"));
        assert!(says(NewSandbox { allowed_hosts: vec!["http://x".into()], ..new.clone() }).contains("not a host"));
        assert!(says(NewSandbox { variables: vec![("A=B".into(), String::new())], ..new.clone() }).contains("A=B"));
        assert!(NewSandbox { prompt: "x".repeat(1 << 20), ..new }.checked().is_ok(), "1 MB is a message");
    }
}
