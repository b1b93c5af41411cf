//! The engine: everything that would survive without a window.


pub mod agent;
pub mod model;
mod process;
pub mod provider;
pub mod secrets;
