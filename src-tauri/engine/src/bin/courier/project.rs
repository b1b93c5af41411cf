//! `courier project`.

use std::process::ExitCode;

use clap::Subcommand;
use courier_engine::engine::Engine;

use crate::{Failure, print::Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a repository: a folder or an address. One that is there already is printed as it is.
    Add {
        source: String,
        #[arg(long)]
        name: Option<String>,
    },
    /// Make the sample project, which works without key or network.
    Sample,
    /// Print every project.
    List,
}

pub(crate) async fn run(engine: &Engine, command: Command, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        Command::Add { source, name } => {
            let source = absolute(&source)?;
            output.project(&engine.project_add(&source, name.as_deref()).await?)?;
        }
        Command::Sample => output.project(&engine.project_sample().await?)?,
        Command::List => {
            for project in engine.project_list().await? {
                output.project(&project)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// On a command line a folder may be given from where one stands.
fn absolute(source: &str) -> Result<String, Failure> {
    let is_address = source.contains("://") || (source.contains('@') && source.contains(':'));
    if is_address {
        return Ok(source.to_owned());
    }
    Ok(std::path::absolute(source)?.display().to_string())
}
