//! placeholder, replaced below
use super::word;
word! { Status { Creating = "creating", Running = "running", Paused = "paused", Killed = "killed", Error = "error" } }
word! { Activity { None = "none", Pausing = "pausing", Resuming = "resuming", Stopping = "stopping" } }
word! { Reason { Stopped = "stopped", TimedOut = "timed_out", StepFinished = "step_finished", Interrupted = "interrupted", Lost = "lost", Abandoned = "abandoned" } }
#[derive(Debug)] pub struct Lifecycle; #[derive(Debug)] pub struct Ending; #[derive(Debug)] pub struct Target;
