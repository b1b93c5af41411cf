//! What becomes of a sandbox's work: the words.

use super::word;

word! {
    /// A step of an ending, in their order. The three in the middle are also "save and open pull request".
    StepKind {
        StopAgent = "stop_agent", Checkpoint = "checkpoint", Commit = "commit", Push = "push",
        PullRequest = "pull_request", Destroy = "destroy",
    }
}

word! {
    /// How far a step is. `held`: it waits for the person to confirm.
    StepStatus {
        Pending = "pending", Running = "running", Done = "done", Skipped = "skipped", Failed = "failed", Held = "held",
    }
}

word! {
    /// How far a sandbox's pull request is.
    PullRequestStatus {
        Creating = "creating", Created = "created", Failed = "failed", Skipped = "skipped", Merged = "merged",
    }
}

word! {
    /// When a project's work is delivered by itself.
    DeliverWhen { OnTurn = "on_turn", OnEnd = "on_end", Ask = "ask", Never = "never" }
}

impl StepStatus {
    /// Whether nothing more happens to it by itself.
    pub fn is_settled(self) -> bool {
        match self {
            Self::Done | Self::Skipped | Self::Failed | Self::Held => true,
            Self::Pending | Self::Running => false,
        }
    }
}
