//! How long a person waits for a new sandbox, against the least that could be done for one by hand: a clone that borrows
//! its objects, and bubblewrap around nothing. Both in turn, so that a busy machine is as unfair to either. Prints one
//! JSON line per figure; each is a median.

mod sandboxes;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use courier_engine::model::Status;
use courier_keeper::{
    client,
    protocol::{Network, OnTimeout, Readiness, Request, StartSpec, VERSION},
};

use self::sandboxes::{Place, print};

/// How often each is measured.
const ROUNDS: usize = 40;

/// How long a keeper may take for anything.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    go_ahead_of_others();
    tokio::runtime::Runtime::new()?.block_on(measure())
}

/// Where that is allowed, this thread and all it begins are not made to wait by other work on the machine: a start is a
/// chain of a dozen processes and threads, and each would wait anew.
fn go_ahead_of_others() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a value of its type. Where it is refused, figures are those of a busy machine.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
}

async fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::new().await?;
    let first = ours(&place).await?;
    let (mut running, mut by_hand, mut ready, mut said, mut bare) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        by_hand.push(clone_and_jail(&place, round)?);
        running.push(ours(&place).await?);
        bare.push(jail()?);
        let (waited, by_itself) = keeper(&place, round)?;
        ready.push(waited);
        said.push(by_itself);
    }
    let (by_hand, bare) = (median(&mut by_hand), median(&mut bare));
    print("start/running", median(&mut running), "ms", Some(by_hand))?;
    print("start/first", first, "ms", Some(by_hand))?;
    print("start/keeper-ready", median(&mut ready), "ms", Some(bare))?;
    print("start/keeper-ready-by-itself", median(&mut said), "ms", None)?;
    place.close().await?;
    Ok(())
}

/// From the request to `running`, in milliseconds. What follows, its only turn and its end, does not count.
async fn ours(place: &Place) -> Result<f64, Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let id = place.create("true").await?;
    place.until(id, |row| row.lifecycle.status == Status::Running).await?;
    let taken = millis(begin);
    place.until(id, |row| !row.is_working && row.queued == 0).await?;
    place.stop(id).await?;
    Ok(taken)
}

fn clone_and_jail(place: &Place, round: usize) -> std::io::Result<f64> {
    let clone = place.folder.path().join(format!("by-hand-{round}"));
    let begin = Instant::now();
    let mut git = program(Path::new("git"));
    git.args(["clone", "--quiet", "--shared"]).arg(place.repository.path()).arg(&clone);
    assert!(git.status()?.success(), "the clone failed");
    jail()?;
    let taken = millis(begin);
    std::fs::remove_dir_all(clone)?;
    Ok(taken)
}

/// The plainest jail there is.
fn jail() -> std::io::Result<f64> {
    let words = "--unshare-all --unshare-user --uid 1000 --gid 1000 --cap-drop ALL --die-with-parent --ro-bind /usr /usr \
                 --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc --dev /dev -- true";
    let begin = Instant::now();
    assert!(program(&sandboxes::bubblewrap()).args(words.split_whitespace()).status()?.success(), "no jail");
    Ok(millis(begin))
}

/// From the start of a keeper to its word that the sandbox is there, and how long it says that took.
fn keeper(place: &Place, round: usize) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let directory = place.folder.path().join(format!("keeper-{round}"));
    let workspace = directory.join("workspace");
    std::fs::create_dir_all(&workspace)?;
    let spec = StartSpec {
        version: VERSION,
        home: directory.join("home"),
        workspace,
        directory: directory.clone(),
        read_only: vec![place.repository.path().join(".git/objects")],
        network: Network::Open,
        allowed_hosts: Vec::new(),
        variables: Vec::new(),
        memory_mb: 1024,
        cpus: 2,
        lifetime_ms: 600_000,
        on_timeout: OnTimeout::Kill,
        bwrap: sandboxes::bubblewrap(),
        bwrap_version: (0, 8),
    };
    let log = std::fs::File::create(directory.join("keeper.log"))?;
    let begin = Instant::now();
    let mut keeper =
        program(&sandboxes::keeper()).arg("keep").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
    keeper.stdin.take().expect("it is piped").write_all(&serde_json::to_vec(&spec)?)?;
    let mut line = String::new();
    BufReader::new(keeper.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let waited = millis(begin);
    let Readiness::Ready { millis: said } = serde_json::from_str(&line)? else { return Err(line.into()) };
    client::ask(&directory, &Request::Destroy, b"", LIMIT)?;
    keeper.wait()?;
    std::fs::remove_dir_all(directory)?;
    Ok((waited, said as f64))
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a bench measures programs the engine does not start")]
fn program(path: &Path) -> Command {
    Command::new(path)
}
