//! The usual surroundings: what the window and the command line open the engine with. The only module that reads the
//! environment.

use std::{path::PathBuf, sync::Arc};

use crate::{agent::discovery::Environment, engine::Config, host::Host, model::SystemClock, secrets::SessionOnly};

/// The engine's surroundings on this machine, with its data in `home`.
pub fn config(home: PathBuf) -> Config {
    Config {
        host: Host::new(home, Arc::new(SessionOnly), Environment),
        clock: Arc::new(SystemClock),
        providers: Vec::new(),
    }
}
