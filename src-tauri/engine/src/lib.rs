//! The engine: everything that would survive without a window.


pub mod agent;
pub mod model;
pub mod provider;
pub mod secrets;
pub mod transcript;
