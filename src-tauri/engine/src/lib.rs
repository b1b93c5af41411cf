//! The engine: everything that would survive without a window.

pub mod agent;
pub mod desktop;
pub mod engine;
pub mod host;
pub mod model;
mod process;
pub mod provider;
mod sandbox;
pub mod secrets;
pub mod settings;
pub mod store;
pub mod transcript;
pub mod work;
