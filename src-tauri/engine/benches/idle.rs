//! What twenty sandboxes cost in which nothing happens: the processor time of the engine, of every keeper and of what
//! lives in their jails, as a share of one core. Prints one JSON line.

mod sandboxes;

use std::time::{Duration, Instant};

use self::sandboxes::{Place, print};

/// How many sandboxes are idle.
const SANDBOXES: usize = 20;

/// How long they are watched.
const WATCHED: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::new().await?;
    let mut ids = Vec::new();
    for _ in 0..SANDBOXES {
        let id = place.create("true").await?;
        place.until(id, |row| !row.is_working && row.queued == 0).await?;
        ids.push(id);
    }
    let own = std::process::id();
    let keepers = children_of(own);
    assert_eq!(keepers.len(), SANDBOXES, "one keeper each");
    let inside = keepers.iter().flat_map(|keeper| children_of(*keeper)).flat_map(|bubblewrap| {
        let mut both = children_of(bubblewrap);
        both.push(bubblewrap);
        both
    });
    let inside: Vec<u32> = inside.collect();
    let used = || {
        let sum = |pids: &[u32]| pids.iter().map(|pid| nanoseconds(*pid)).sum::<u64>() as f64;
        [sum(&[own]), sum(&keepers), sum(&inside)]
    };
    let (begin, before) = (Instant::now(), used());
    tokio::time::sleep(WATCHED).await;
    let (after, watched) = (used(), begin.elapsed().as_nanos() as f64);
    let shares: Vec<f64> = after.iter().zip(before).map(|(after, before)| (after - before) / watched * 100.0).collect();
    print("idle/processor", shares.iter().sum(), "% of a core", None)?;
    for (name, share) in ["idle/engine", "idle/keepers", "idle/inside"].into_iter().zip(shares) {
        print(name, share, "% of a core", None)?;
    }
    for id in ids {
        place.stop(id).await?;
    }
    place.close().await?;
    Ok(())
}

/// What a process has used of a processor, all its threads together, those that ended too.
fn nanoseconds(pid: u32) -> u64 {
    let pid = libc::pid_t::try_from(pid).expect("a pid fits its own type");
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are to values of their type.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    assert!(read, "process {pid} is gone");
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()).collect()
}
