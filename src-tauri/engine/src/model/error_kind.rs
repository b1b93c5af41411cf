use super::word;

word! {
    /// Why a turn failed, told apart because a person would do something different about each.
    ErrorKind {
        MissingCli = "missing_cli",
        MissingKey = "missing_key",
        RejectedKey = "rejected_key",
        Permission = "permission",
        Billing = "billing",
        RateLimited = "rate_limited",
        Overloaded = "overloaded",
        ContextTooLong = "context_too_long",
        LimitReached = "limit_reached",
        Network = "network",
        SessionNotFound = "session_not_found",
        Interrupted = "interrupted",
        Crashed = "crashed",
        Other = "other",
    }
}

impl ErrorKind {
    /// Whether the same message may succeed when it is sent again unchanged.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Overloaded
            | Self::Network
            | Self::Interrupted
            | Self::Crashed
            | Self::SessionNotFound => true,
            Self::MissingCli
            | Self::MissingKey
            | Self::RejectedKey
            | Self::Permission
            | Self::Billing
            | Self::ContextTooLong
            | Self::LimitReached
            | Self::Other => false,
        }
    }
}
