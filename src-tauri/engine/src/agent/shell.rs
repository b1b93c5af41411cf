//! Shell: an agent without a model. Each message is a script, its output the answer.

use super::{Agent, Cli, Exit, Failure, Launch, Model, Outcome, Parser, Process, failure};
use crate::{
    model::{AgentKind, Delta, Item, Stream, Timestamp, Usage},
    secrets::CredentialKind,
    transcript::{Items, OutputText},
};

/// Reads the whole script from standard input, then runs it without one: a command in it that reads (`ssh`, `cat`)
/// must not eat the rest of the script. The script is in no argument, so that it may be long and stays private; `--`
/// lets it begin with a dash. What it prints about its own mistakes names the line: "script: line 3: …".
const RUN: &str = r#"eval -- "$(cat)" </dev/null"#;

/// The registry's entry.
#[derive(Debug)]
pub(super) struct Shell;

impl Agent for Shell {
    fn kind(&self) -> AgentKind {
        AgentKind::Shell
    }

    fn name(&self) -> &'static str {
        "Shell"
    }

    fn models(&self) -> &'static [Model] {
        &[]
    }

    fn default_model(&self) -> Option<&'static str> {
        None
    }

    fn credentials(&self) -> &'static [CredentialKind] {
        &[]
    }

    fn cli(&self) -> Option<&'static Cli> {
        None
    }

    fn hosts(&self) -> &'static [&'static str] {
        &[]
    }

    fn launch(&self, launch: &Launch<'_>) -> Process {
        let program = match launch.program.to_str() {
            Some(program) if !program.is_empty() => program.to_owned(),
            _ => "/bin/bash".to_owned(),
        };
        Process {
            argv: [program.as_str(), "-c", RUN, "script"].map(str::to_owned).to_vec(),
            env: Vec::new(),
            stdin: launch.prompt.as_bytes().to_vec(),
        }
    }

    fn parser(&self, _before: Option<Usage>) -> Box<dyn Parser> {
        Box::new(ShellParser::default())
    }
}

/// Shows what the script prints.
#[derive(Debug, Default)]
struct ShellParser {
    items: Items,
    output: OutputText,
    ended: bool,
}

impl Parser for ShellParser {
    fn read(&mut self, stream: Stream, bytes: &[u8], _at: Timestamp, deltas: &mut Vec<Delta>) {
        self.output.push(stream, bytes, &mut self.items, deltas);
    }

    fn session_id(&self) -> Option<&str> {
        None
    }

    fn usage(&self) -> Option<Usage> {
        None
    }

    fn headline(&self) -> Option<String> {
        (!self.ended).then(|| "runs the script".to_owned())
    }

    /// A script that returns another code than 0 has answered; only one that was ended has failed.
    fn finish(&mut self, exit: Exit, interrupted: bool, _at: Timestamp, deltas: &mut Vec<Delta>) -> Outcome {
        self.output.finish(&mut self.items, deltas);
        let (kind, message) = failure::of_exit("The script", exit, interrupted);
        self.ended = true;
        let failed = match exit {
            // It may have ended by itself before it could be asked to.
            Exit::Code(0) => false,
            Exit::Code(_) => interrupted,
            Exit::Signal(_) | Exit::Unknown => true,
        };
        let error = failed.then_some(Failure { kind, message, retry_at: None });
        if let Some(Failure { kind, message, .. }) = &error {
            let item = Item::Error { error: *kind, message: message.clone(), retry_at: None };
            self.items.add(item, deltas);
        }
        Outcome { error, session_id: None, usage: None, session_usage: None }
    }
}
