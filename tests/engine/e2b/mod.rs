//! Sandboxes on machines of an E2B-compatible server.

mod provider;
