//! Journeys: what a person does, in the real window, through WebDriver, on a desktop that nobody sees.
//!
//! Each journey is one test, with a desktop and a data folder of its own. It finds what it touches by `data-testid` and
//! waits for what the window shows, never for a time. Screenshots go to `target/journeys/<journey>/`; a journey that
//! fails leaves one more and prints what the app said. They run one at a time: `--test-threads=1`.
#![cfg(target_os = "linux")]

mod app;
mod cloud;
mod figures;
mod journey;
mod look;
mod steps;
mod store;

mod agents;
mod claude;
mod crash;
mod desktop;
mod errors;
mod hostile;
mod pause;
mod sample;
mod soak;
mod stream;
mod timeout;
mod views;
mod work;
