//! What reads an agent's working tree and its bundles.
//!
//! Both are hostile, so this is a program of its own (`courier-checkpoint`): it is started for one request, inside a jail
//! that shows it the workspace read-only, the vault, and nothing else, and it has a limit of time. The engine uses the
//! library for the request and the answer.

pub mod bring;
pub mod limits;
pub mod request;
pub mod take;
