//! The engine: everything that would survive without a window.
//!
//! A tour. [`engine::Engine`] is the only door: the window's shell and the `courier` program open it over a data folder,
//! ask it for things, and hear from its feed what was committed.
//!
//! What may happen to a sandbox is one pure table, [`model::lifecycle`]. Each live sandbox has one owner, an actor in
//! `sandbox`: requests and results reach it as values, the table says what they mean, the new state is stored, and then
//! its effect begins. Effects are idempotent, so after a crash the owner re-reads what it owes and compares it with what
//! truly runs.
//!
//! Where sandboxes live is a [`provider::Provider`]'s business. The local one talks to a keeper, a small program that
//! outlives the app and writes what an agent prints to a spool. A follower reads the spool from the offset that was
//! stored with the last bytes; the agent's parser ([`agent::Parser`]) turns bytes into items; `sandbox::ingest` stores raw
//! bytes, items and offset in one transaction. That is why nothing is lost and nothing is doubled.
//!
//! [`store`] is SQLite: one writer thread, a few readers, and the feed in commit order. [`work`] is git: the mirror and
//! the workspaces that borrow from it. [`forge`] is GitHub: what is pushed becomes a pull request. [`secrets`] is the keychain and the redaction. [`host`] is what this machine
//! offers, and [`desktop`] puts the usual surroundings together.

pub mod agent;
mod delivery;
pub mod desktop;
pub mod engine;
mod folder;
pub mod forge;
pub mod host;
pub mod model;
mod net;
mod process;
pub mod provider;
mod sandbox;
pub mod secrets;
pub mod settings;
pub mod store;
pub mod transcript;
pub mod work;
