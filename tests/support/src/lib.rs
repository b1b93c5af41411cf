//! Stand-ins and harness for the tests: a scripted model server, a git server, a GitHub-compatible server, an
//! E2B-compatible server, temporary repositories, a private desktop to run the app on, and a look at what runs.

#[cfg(target_os = "linux")]
pub mod desktop;
#[cfg(target_os = "linux")]
pub mod e2b;
pub mod git_http;
pub mod github;
pub mod judges;
pub mod models;
#[cfg(target_os = "linux")]
pub mod processes;
pub mod provider;
pub mod repositories;
mod serving;
#[cfg(target_os = "linux")]
pub mod small_disk;
pub mod trouble;
