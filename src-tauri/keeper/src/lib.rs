//! Keeps one sandbox alive and jailed.
//!
//! One small program, three lives:
//!
//! - **keeper** (`courier-keeper keep`): one per sandbox, outside the jail, started by the app and outliving it. It
//!   starts bubblewrap, copies what agents print to their spools, counts the sandbox's running time, and is the
//!   sandbox's only way to the network.
//! - **init** (`courier-keeper init`): pid 1 inside the jail. It starts turns and ends them.
//! - **guest** (`courier-keeper guest`): inside a machine that is a sandbox by itself, with each turn.
//!
//! To read it from the top: [`protocol`] is what the app can ask; `keep/` answers it; `linux/jail.rs` and
//! `linux/filter.rs` are the jail; `linux/init/` is what lives in it; `proxy/` is the way out of it, and to the model.
//! [`spool`], [`redact`], [`identity`], [`upstream`] and [`client`] are shared with the engine.
//!
//! On macOS there is no init: `macos/` does with Seatbelt and a process's environment what it can. On other systems
//! there are no local sandboxes.

#[cfg(unix)]
pub mod client;
pub mod identity;
pub mod protocol;
pub mod redact;
pub mod spool;
pub mod upstream;

#[cfg(unix)]
mod keep;
#[cfg(unix)]
mod proxy;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod sys;
#[cfg(unix)]
mod tree;

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod platform;
#[cfg(target_os = "macos")]
#[path = "macos/mod.rs"]
mod platform;

use std::process::ExitCode;

/// The program: its first word says which life it is.
pub fn main(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match live(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(unix)]
fn live(words: &[&str]) -> std::io::Result<()> {
    match words {
        ["keep"] => keep::run(),
        #[cfg(target_os = "linux")]
        ["init", control] => match control.parse() {
            Ok(control) => platform::init::run(control),
            Err(error) => Err(std::io::Error::other(format!("init's descriptor: {error}"))),
        },
        #[cfg(target_os = "linux")]
        ["guest", words @ ..] => platform::guest::live(words),
        _ => Err(std::io::Error::other("this program is started by CodeCourier, and does nothing for people")),
    }
}

#[cfg(not(unix))]
fn live(_words: &[&str]) -> std::io::Result<()> {
    Err(std::io::Error::other("sandboxes on this machine need Linux or macOS; use Docker or E2B here"))
}
