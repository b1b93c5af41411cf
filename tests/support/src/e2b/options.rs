//! How a server is started.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// What machines of a template find within.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Programs by name: each is `/usr/local/bin/<name>` within, a link to its real path.
    pub programs: Vec<(String, PathBuf)>,
    /// Folders (or files) of this machine that are there at their own paths, and cannot be written.
    pub read_only: Vec<PathBuf>,
}

/// How a server is started. The default is a plan without limits and one bare template, `base`.
#[derive(Clone, Debug)]
pub struct Options {
    /// 0 takes a free one.
    pub port: u16,
    /// The key that is let in; a new one where none is given.
    pub key: Option<String>,
    /// Where the machines' folders lie; a temporary folder where none is given.
    pub root: Option<PathBuf>,
    /// By name.
    pub templates: BTreeMap<String, Template>,
    /// The longest a machine of this plan may run at a stretch.
    pub maximum_hours: Option<u64>,
    /// How many machines of this plan may run at once; those that are paused do not count.
    pub maximum_running: Option<usize>,
    /// How wrong the server's clock is, in what it says about start and end.
    pub clock_skew: Duration,
    /// Whether its clock is behind, not ahead.
    pub is_clock_behind: bool,
    /// Whether a killed machine's folder goes at once, not with the server.
    pub removes_folders: bool,
    /// What a machine says of its size.
    pub cpu_count: u32,
    /// Likewise.
    pub memory_megabytes: u64,
    /// Likewise.
    pub disk_megabytes: u64,
    /// The daemon's program; by default as `CODECOURIER_TEST_ENVD` says, or else beside our own program.
    pub envd: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            port: 0,
            key: None,
            root: None,
            templates: BTreeMap::from([("base".to_owned(), Template::default())]),
            maximum_hours: None,
            maximum_running: None,
            clock_skew: Duration::ZERO,
            is_clock_behind: false,
            removes_folders: false,
            cpu_count: 2,
            memory_megabytes: 512,
            disk_megabytes: 2621,
            envd: None,
        }
    }
}
