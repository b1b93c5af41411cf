//! The jail on Linux: bubblewrap outside, our own init inside.

mod control;
mod filter;
pub(crate) mod guest;
pub(crate) mod init;
mod jail;
mod launch;
mod limits;
mod passing;

pub(crate) use launch::{Jail, base_variables};
