//! How each agent is launched and its output read.
//!
//! The registry is a table of `&'static dyn Agent`. Everything that differs between agents is behind the trait; what
//! happens with the bytes (spool, offsets, storing, showing) is the same for all of them.

mod claude;
mod codex;
pub mod discovery;
mod failure;
mod makers;
mod opencode;
mod page;
mod pi;
mod shell;
mod stderr;

use std::{fmt, path::PathBuf};

use crate::{
    model::{AgentKind, Delta, ErrorKind, Stream, Timestamp, Usage},
    secrets::{CredentialKind, Secret},
};

/// A model an agent offers. Models are data: any other id is accepted as free text.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub id: &'static str,
    pub name: &'static str,
}

/// Where an agent's program is looked for, and which versions are known to work.
#[derive(Clone, Copy, Debug)]
pub struct Cli {
    /// The program's name as a person types it.
    pub program: &'static str,
    /// What prints its version.
    pub version_argument: &'static str,
    /// The oldest version known to work.
    pub minimum_version: (u32, u32, u32),
    /// What to run to get it.
    pub install: &'static str,
    /// Where the program itself is, beneath a folder `node_modules`, where what a person types is only a script that starts
    /// it; a star stands for any part of one name. A script that is killed would leave the program behind.
    pub native: Option<&'static str>,
    /// The oldest Node that runs it, where it is a script.
    pub node: Option<(u32, u32, u32)>,
}

/// How a turn relates to the conversation before it.
#[derive(Clone, Debug)]
pub enum Session {
    /// A new conversation under this id (a UUID chosen by us).
    Fresh(String),
    /// The conversation with this stored id.
    Resume(String),
    /// The newest conversation of this HOME: no id was ever stored.
    Continue,
}

/// What is needed to start one turn.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The CLI as found by discovery; for Shell the shell itself.
    pub program: PathBuf,
    /// What runs it, where it is a script.
    pub interpreter: Option<PathBuf>,
    pub prompt: &'a str,
    pub model: Option<&'a str>,
    pub session: Session,
    /// What the agent shows its model, and which kind of credential it stands for: a plain token for the gateway, or the
    /// secret itself. For agents that need one.
    pub credential: Option<(CredentialKind, EnvValue)>,
    /// Where the model's endpoint is, if not at its maker's: the gateway, or the address a person has set. Agents put the
    /// API's own path behind it: `/v1/messages` for Anthropic's, `/responses` or `/chat/completions` for OpenAI's, whose
    /// own address ends in `/v1`.
    pub base_url: Option<&'a str>,
    /// How hard the model should think, one of the agent's [`efforts`](Agent::efforts); `None`: as the agent likes.
    pub effort: Option<&'a str>,
    /// Arguments from the settings, validated against those the agent's adapter owns.
    pub extra_arguments: &'a [String],
}

/// A process to start inside a sandbox. Secrets are in the environment only, the prompt in `stdin` only.
#[derive(Debug)]
pub struct Process {
    pub argv: Vec<String>,
    pub env: Vec<(String, EnvValue)>,
    pub stdin: Vec<u8>,
}

/// The value of an environment variable; a secret one prints as `Secret(…)`.
#[derive(Clone, Debug)]
pub enum EnvValue {
    Plain(String),
    Secret(Secret),
}

/// How a model is asked by somebody who holds the key in the agent's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is, if a person has not said otherwise; `None`: only a person can say.
    pub address: Option<&'static str>,
    pub header: KeyHeader,
}

impl Endpoint {
    /// The endpoint a key opens; `None` for what is no key of a model.
    pub fn of(credential: CredentialKind) -> Option<Self> {
        use CredentialKind as K;
        let (address, header) = match credential {
            K::AnthropicKey => (Some("https://api.anthropic.com"), KeyHeader::XApiKey),
            K::OpenaiKey => (Some("https://api.openai.com/v1"), KeyHeader::Bearer),
            K::OpenrouterKey => (Some("https://openrouter.ai/api/v1"), KeyHeader::Bearer),
            K::CompatibleKey => (None, KeyHeader::Bearer),
            K::ClaudeOauthToken | K::GithubToken | K::GithubEnterpriseToken | K::E2bKey => return None,
        };
        Some(Self { address, header })
    }
}

/// Where an API expects its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `x-api-key: KEY`, as Anthropic's.
    XApiKey,
    /// `Authorization: Bearer KEY`, as OpenAI's and those made like it.
    Bearer,
}

/// How an agent's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// It died of this signal.
    Signal(i32),
    /// It vanished, and nobody saw how (the machine was rebooted, its keeper was killed).
    Unknown,
}

/// How a turn ended, told from everything the agent said; its exit code is only one witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `None`: completed.
    pub error: Option<Failure>,
    /// The newest session id the agent named.
    pub session_id: Option<String>,
    /// The turn's own consumption; `None` where the agent died before it reported.
    pub usage: Option<Usage>,
    /// What the whole session has consumed, where that is what the agent counts: what the next turn's parser counts from.
    pub session_usage: Option<Usage>,
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: ErrorKind,
    /// The agent's own words, for the person.
    pub message: String,
    /// When a limit is known to end.
    pub retry_at: Option<Timestamp>,
}

/// Reads one turn's output. Never panics, whatever the bytes; the same bytes in the same order give the same items,
/// however they are cut into chunks.
pub trait Parser: Send + fmt::Debug {
    /// Reads bytes of one of the two streams. `at` is when they were read (for durations only).
    fn read(&mut self, stream: Stream, bytes: &[u8], at: Timestamp, deltas: &mut Vec<Delta>);

    /// The newest session id the agent has named so far.
    fn session_id(&self) -> Option<&str>;

    /// The last known consumption of the turn so far.
    fn usage(&self) -> Option<Usage>;

    /// One line about what the agent does now: "runs npm test", "edits src/main.rs", "writes"; `None` when unknown.
    fn headline(&self) -> Option<String>;

    /// The process has ended and all its bytes were read. `interrupted`: we asked it to end.
    fn finish(&mut self, exit: Exit, interrupted: bool, at: Timestamp, deltas: &mut Vec<Delta>) -> Outcome;
}

/// One entry of the registry.
pub trait Agent: Send + Sync + fmt::Debug {
    fn kind(&self) -> AgentKind;
    /// As a person knows it: "Claude Code".
    fn name(&self) -> &'static str;
    fn models(&self) -> &'static [Model];
    fn default_model(&self) -> Option<&'static str>;
    /// Credentials it can work with, the preferred one first; empty: it needs none.
    fn credentials(&self) -> &'static [CredentialKind];
    /// Those of them that open this model, the preferred one first. An agent that knows several makers tells them apart by
    /// the model's name.
    fn credentials_for(&self, _model: Option<&str>) -> &'static [CredentialKind] {
        self.credentials()
    }
    /// `None`: nothing to install.
    fn cli(&self) -> Option<&'static Cli>;
    /// The endpoint this credential opens, where it can be opened for the agent by the gateway: the agent then gets a
    /// token and the gateway's address. `None`: the agent must have the credential itself ("key inside").
    fn endpoint(&self, credential: CredentialKind) -> Option<Endpoint> {
        self.credentials().contains(&credential).then(|| Endpoint::of(credential)).flatten()
    }
    /// Hosts its model endpoint lives at when no base URL is set: what must be reachable for an agent that has its key
    /// itself.
    fn hosts(&self) -> &'static [&'static str];
    /// How hard its models can be asked to think, from little to much; empty: that cannot be said.
    fn efforts(&self) -> &'static [&'static str] {
        &[]
    }
    /// How much memory a sandbox for it gets when nothing else is said, in megabytes.
    fn memory_mb(&self) -> u32 {
        1024
    }
    /// Options of its command line that are ours to give: a person's extra arguments may not name them.
    fn own_options(&self) -> &'static [&'static str] {
        &[]
    }
    fn launch(&self, launch: &Launch<'_>) -> Process;
    /// Reads one turn. `before`: what the session had consumed before it, for an agent that counts over the session.
    fn parser(&self, before: Option<Usage>) -> Box<dyn Parser>;
}

/// Every agent there is, in the order in which they are offered.
pub fn agents() -> &'static [&'static dyn Agent] {
    &[&claude::Claude, &codex::Codex, &opencode::OpenCode, &pi::Pi, &shell::Shell]
}

/// A path as seen from the workspace: every sandbox's is the folder of that name beneath the sandbox's own.
fn in_workspace(path: &str) -> &str {
    const FOLDER: &str = "/workspace/";
    // A folder of the project may have that name too: the first one beneath the sandbox's is meant.
    let begin = path.find("/sandboxes/").unwrap_or(0);
    let found = path[begin..].find(FOLDER).map(|at| &path[begin + at + FOLDER.len()..]);
    found.filter(|rest| !rest.is_empty()).unwrap_or(path)
}

/// The agent of this kind; `None` for one that cannot be started yet.
pub fn agent(kind: AgentKind) -> Option<&'static dyn Agent> {
    agents().iter().copied().find(|agent| agent.kind() == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_the_workspace_on() {
        let cases = [
            ("/data/sandboxes/7/workspace/src/main.rs", "src/main.rs"),
            ("/data/sandboxes/7/workspace/src/workspace/a.rs", "src/workspace/a.rs"),
            ("/home/me/workspace/data/sandboxes/7/workspace/a.rs", "a.rs"),
            ("/workspace/a.rs", "a.rs"),
            ("/data/sandboxes/7/workspace/", "/data/sandboxes/7/workspace/"),
            ("src/main.rs", "src/main.rs"),
        ];
        for (path, seen) in cases {
            assert_eq!(in_workspace(path), seen);
        }
    }

    /// What an agent names it may be given. The tokens for a forge are the app's own.
    #[test]
    fn no_agent_names_a_token_of_a_forge() {
        for agent in agents() {
            let named = agent.credentials();
            let is_forge = |kind: &CredentialKind| kind.code().starts_with("github");
            assert!(!named.iter().any(is_forge), "{}", agent.name());
            for kind in CredentialKind::ALL.iter().filter(|kind| is_forge(kind)) {
                assert!(agent.endpoint(*kind).is_none(), "{}", agent.name());
            }
        }
    }
}
