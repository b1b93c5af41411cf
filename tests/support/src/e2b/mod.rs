//! An E2B-compatible server on loopback: the control plane and the way to its machines at one address, whose machines are
//! folders and local processes. `e2b-conformance/` proves it with the unmodified official clients.
//!
//! A machine is a folder with what can be written in it, and a PID namespace that bubblewrap holds, in which the daemon
//! `e2b-envd` runs. To pause it is to stop every process of the namespace; to kill it is to kill the namespace's first.
//! The network and `/usr` are the host's: nothing here is meant to keep anybody in. All of it ends with the server, even
//! if that is killed: bubblewrap dies with the thread that started it.

mod answers;
mod bubblewrap;
mod clock;
mod control;
mod create;
pub mod envd;
mod fault;
mod fleet;
mod frames;
mod freeze;
mod list;
mod metrics;
mod options;
mod pidfd;
mod proxy;
mod serve;
mod server;
mod vm;
mod wire;

pub use self::{
    fault::{Call, Fault, Occurrence, PauseFailure, What},
    options::{Options, Template},
    server::{E2bServer, RequestSeen, templates_of},
    vm::{Machine, State},
};
