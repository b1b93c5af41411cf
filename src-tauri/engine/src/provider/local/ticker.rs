//! One clock for all who follow a spool: a thread that sleeps while nobody does. A timer each would cost more than the
//! following.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::watch;

use super::{super::Error, unreadable};

/// How late output may be seen.
const PERIOD: Duration = Duration::from_millis(10);

/// Ticks while somebody listens. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    ticks: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    listeners: usize,
    is_running: bool,
    is_over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

/// Hears the ticks.
#[derive(Debug)]
pub(super) struct Ticks {
    shared: Arc<Shared>,
    receiver: watch::Receiver<()>,
}

impl Ticker {
    pub(super) fn new() -> Self {
        let (ticks, _) = watch::channel(());
        Self { shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), ticks }) }
    }

    /// Begins to listen.
    pub(super) fn subscribe(&self) -> Result<Ticks, Error> {
        let mut state = self.shared.state();
        if !state.is_running {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new().name("spool ticker".into()).spawn(move || tick(&shared));
            started.map_err(|source| unreadable("the ticker's thread".as_ref(), source))?;
            state.is_running = true;
        }
        state.listeners += 1;
        self.shared.changed.notify_one();
        Ok(Ticks { shared: Arc::clone(&self.shared), receiver: self.shared.ticks.subscribe() })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Ticks {
    /// Waits for the next tick. Cancel-safe.
    pub(super) async fn next(&mut self) {
        if self.receiver.changed().await.is_err() || self.shared.state().is_over {
            // The provider is gone; what follows its spool still goes on, by itself.
            tokio::time::sleep(PERIOD).await;
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        self.shared.state().listeners -= 1;
    }
}

fn tick(shared: &Shared) {
    loop {
        let state = shared.state();
        let awake = shared.changed.wait_while(state, |state| state.listeners == 0 && !state.is_over);
        let is_over = awake.expect("nobody panics while holding it").is_over;
        // At the end once more, so that whoever waits sees that it is.
        shared.ticks.send_replace(());
        if is_over {
            return;
        }
        std::thread::sleep(PERIOD);
    }
}
