//! The E2B-compatible server, for a person, a client's own tests, or a load test:
//!
//! ```text
//! cargo run -p courier-test-support --bin e2b-server -- --template base --template agents=claude:/path/to/claude
//! ```
//!
//! It prints one line of JSON with its address and its key, and ends with its standard input or by SIGTERM. The official
//! clients find it by `E2B_API_URL`, `E2B_SANDBOX_URL` (both the address) and `E2B_API_KEY`.
#![cfg_attr(
    target_os = "linux",
    expect(clippy::print_stdout, reason = "a program for people: its address is its output")
)]

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    server::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("the machines of this server need Linux")
}

#[cfg(target_os = "linux")]
mod server {
    use std::path::PathBuf;

    use clap::Parser;
    use courier_test_support::e2b::{E2bServer, Options, templates_of};
    use tokio::signal::unix::{SignalKind, signal};

    /// A cloud of machines on this one, as E2B's clients know it, on 127.0.0.1.
    #[derive(Parser, Debug)]
    struct Arguments {
        /// The port to listen on; 0 takes a free one.
        #[arg(long, default_value_t = 0)]
        port: u16,
        /// Where the machines' folders lie; a temporary folder if not given.
        #[arg(long)]
        root: Option<PathBuf>,
        /// A template: `name`, or `name=program,program`, where a program is a path or `called:path`.
        #[arg(long, default_value = "base")]
        template: Vec<String>,
        /// The key that is let in; a new one if not given.
        #[arg(long)]
        key: Option<String>,
        /// How many machines may run at once.
        #[arg(long)]
        maximum_running: Option<usize>,
        /// How long a machine may run at a stretch.
        #[arg(long)]
        maximum_hours: Option<u64>,
        /// Removes a killed machine's folder at once.
        #[arg(long)]
        removes_folders: bool,
    }

    pub(crate) fn main() -> anyhow::Result<()> {
        let arguments = Arguments::parse();
        more_files();
        let server = E2bServer::start(Options {
            port: arguments.port,
            root: arguments.root,
            templates: templates_of(&arguments.template)?,
            key: arguments.key,
            maximum_running: arguments.maximum_running,
            maximum_hours: arguments.maximum_hours,
            removes_folders: arguments.removes_folders,
            ..Options::default()
        })?;
        println!("{}", serde_json::json!({ "url": server.url(), "key": server.key() }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut asked = signal(SignalKind::terminate())?;
            let mut interrupted = signal(SignalKind::interrupt())?;
            let (tell, input_ended) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                _ = tell.send(()); // The program may be ending for another reason.
            });
            tokio::select! {
                _ = asked.recv() => {}
                _ = interrupted.recv() => {}
                _ = input_ended => {}
            }
            Ok::<_, anyhow::Error>(())
        })?;
        drop(server);
        Ok(())
    }

    /// Many machines are many open files.
    fn more_files() {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls take a pointer to a value of ours that outlives them.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            }
        }
    }
}
