//! Long proofs, each with a short slice that every test run takes. A proof is a function of its size and a seed: the same
//! seed makes the same choices again.

mod audit;
#[cfg(target_os = "linux")]
mod crash;
mod life;
#[cfg(target_os = "linux")]
mod parsers;

/// How many cases are under way at once.
const WORKERS: usize = 4;

/// What a proof was asked for: `COURIER_SEED` replays it, `COURIER_PROOF_SIZE` makes it longer or shorter.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// The seed of a long proof: the one asked for, else a new one. Printed first, so that a failure can be replayed.
fn seed(proof: &str) -> u64 {
    let seed = asked("COURIER_SEED").unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0));
    figure(&format!("{proof}/seed"), seed, "");
    seed
}

fn size(usual: u64) -> u64 {
    asked("COURIER_PROOF_SIZE").unwrap_or(usual)
}

/// Prints one figure.
fn figure(name: &str, value: u64, unit: &str) {
    println!(r#"{{"name":"{name}","value":{value},"unit":"{unit}","against":null,"ratio":null}}"#);
}

/// Does `case` with 0, 1, 2 … on a few threads, until one of them says that it was enough, or fails. They wait more than
/// they work. `COURIER_CASE` does only one.
fn in_parallel(case: impl Fn(u64) -> bool + Sync) {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    if let Some(only) = asked("COURIER_CASE") {
        _ = case(only);
        return;
    }
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        while !is_over.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(number)));
            if !matches!(outcome, Ok(true)) {
                is_over.store(true, Ordering::SeqCst);
            }
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| _ = scope.spawn(work)));
}

/// Choices that a seed decides.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    /// Those of one case of a proof.
    fn of(seed: u64, case: u64) -> Self {
        let mut dice = Self(seed ^ case.wrapping_mul(0xA076_1D64_78BD_642F));
        _ = dice.roll();
        dice
    }

    /// splitmix64.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.roll() % bound }
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(from.len() as u64)).expect("an index");
        from.get(at).copied()
    }
}
