//! Stand-ins and harness for the tests: a scripted model server, temporary repositories, a private desktop to run the
//! app on, and a look at what runs.

#[cfg(target_os = "linux")]
pub mod desktop;
pub mod models;
#[cfg(target_os = "linux")]
pub mod processes;
pub mod provider;
pub mod repositories;
#[cfg(target_os = "linux")]
pub mod small_disk;
pub mod trouble;
