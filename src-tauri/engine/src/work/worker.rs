//! The worker that reads what an agent left (`courier-checkpoint`): a program started for one request, in a jail of its
//! own where there is bubblewrap.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use courier_checkpoint::{
    jail::{self, Sight},
    request::{Answer, Cause, Failure, Request},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::Error;
use crate::process;

/// How long one request may take, where nobody says otherwise. A first checkpoint of a large tree takes seconds.
const LIMIT: Duration = Duration::from_secs(600);

/// No answer is longer.
const MOST_ANSWER: u64 = 32 << 20;

/// How much of what it says on standard error is kept.
const MOST_COMPLAINT: u64 = 16 << 10;

/// Why the worker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    #[error("could not {0}")]
    Refused(Failure),
    #[error("the worker could not be run: {0}")]
    NotRun(io::Error),
    #[error("the worker took longer than {} s", .0.as_secs())]
    Deadline(Duration),
    /// It ended, and what it said is no answer; a defect, or a jail that can't be made here.
    #[error("the worker gave no answer: {0}")]
    NoAnswer(String),
}

impl WorkerError {
    pub(crate) fn missing() -> Self {
        Self::NotRun(io::Error::new(io::ErrorKind::NotFound, "courier-checkpoint is missing"))
    }
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Worker {
    program: PathBuf,
    bubblewrap: Option<PathBuf>,
    limit: Duration,
}

impl Worker {
    /// `program` is the worker that comes with the app, a copy of which in `copies` is run; `bubblewrap` where that makes
    /// jails here: without it the worker runs as it is. Blocking: call it where waiting is allowed.
    ///
    /// # Errors
    /// `Io`.
    pub fn install(program: &Path, copies: &Path, bubblewrap: Option<PathBuf>) -> Result<Self, Error> {
        let program = process::install(program, copies).map_err(|(path, source)| Error::Io { path, source })?;
        Ok(Self { program, bubblewrap, limit: LIMIT })
    }

    /// With another limit of time.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Asks for one thing. Where the answer is not waited for any more, the worker is killed; nothing it does is half
    /// done then.
    ///
    /// # Errors
    /// `DiskFull`, or `Worker`.
    pub async fn ask(&self, request: &Request, sight: &Sight) -> Result<Answer, Error> {
        let answer = match tokio::time::timeout(self.limit, self.run(request, sight)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(WorkerError::Deadline(self.limit).into()),
        };
        match answer {
            Answer::Failed(Failure { cause: Cause::DiskFull, .. }) => Err(Error::DiskFull),
            Answer::Failed(failure) => Err(WorkerError::Refused(failure).into()),
            answer => Ok(answer),
        }
    }

    async fn run(&self, request: &Request, sight: &Sight) -> Result<Answer, WorkerError> {
        let text = serde_json::to_vec(request).map_err(|error| WorkerError::NotRun(error.into()))?;
        let mut command = match &self.bubblewrap {
            Some(bubblewrap) => {
                let mut command = process::helper(bubblewrap);
                command.args(jail::arguments(&self.program, sight));
                command
            }
            None => process::helper(&self.program),
        };
        command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Dropped, it is killed; bubblewrap takes with it what it started.
        let mut child = command.spawn().map_err(WorkerError::NotRun)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let told = async {
            if let Some(mut stdin) = stdin {
                // One that ends without having read says why in its own way.
                _ = stdin.write_all(&text).await;
            }
        };
        let ((), answer, complaint) = tokio::join!(told, collect(stdout, MOST_ANSWER), collect(stderr, MOST_COMPLAINT));
        let status = child.wait().await.map_err(WorkerError::NotRun)?;
        let complaint = complaint.unwrap_or_default();
        let complaint = String::from_utf8_lossy(&complaint);
        if !complaint.is_empty() {
            tracing::warn!(%complaint, "the checkpoint worker complained");
        }
        let answer = answer.map_err(WorkerError::NotRun)?;
        serde_json::from_slice(&answer).map_err(|error| {
            let last = complaint.trim().lines().last().map_or_else(|| error.to_string(), str::to_owned);
            WorkerError::NoAnswer(format!("{last} ({status})"))
        })
    }
}

/// All it says, up to so many bytes; the rest is read and forgotten, so that it does not wait for us.
async fn collect(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        (&mut from).take(most).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}
