//! Every machine of a server, and what is done to one by name or by the clock.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::{
    bubblewrap::Process,
    envd::Settings,
    options::Options,
    vm::{Machine, NotPaused, Standing, State, Vm, Wish},
};
use crate::serving::held;

/// An answer that was promised to whoever asks with the same key.
pub(super) type Promise = Arc<tokio::sync::Mutex<Option<(u16, Value)>>>;

#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) options: Options,
    pub(super) root: PathBuf,
    envd: PathBuf,
    machines: Mutex<BTreeMap<String, Arc<Vm>>>,
    /// How many are coming up: they count as running.
    starting: AtomicUsize,
    created: AtomicUsize,
    /// By idempotency key: what was asked, and what was answered.
    pub(super) promises: Mutex<HashMap<String, (Value, Promise)>>,
    pub(super) tasks: TaskTracker,
}

/// Why there is no new machine.
#[derive(Debug)]
pub(super) enum NotMade {
    NoCapacity(usize),
    Failed(anyhow::Error),
}

/// A place in the plan, while a machine comes up.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Fleet {
    pub(super) fn new(options: Options, root: PathBuf, envd: PathBuf) -> Arc<Self> {
        Arc::new(Fleet {
            options,
            root,
            envd,
            machines: Mutex::default(),
            starting: AtomicUsize::new(0),
            created: AtomicUsize::new(0),
            promises: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    pub(super) fn created(&self) -> usize {
        self.created.load(Ordering::SeqCst)
    }

    pub(super) fn machines(&self) -> Vec<Machine> {
        self.all().iter().map(|vm| vm.told()).collect()
    }

    /// Those that live, in the order of their ids.
    pub(super) fn all(&self) -> Vec<Arc<Vm>> {
        held(&self.machines).values().cloned().collect()
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Vm>> {
        held(&self.machines).get(id).cloned()
    }

    /// The longest a machine may run at a stretch.
    pub(super) fn maximum(&self) -> Option<Duration> {
        self.options.maximum_hours.map(|hours| Duration::from_secs(hours * 3600))
    }

    fn place(&self) -> Result<Place<'_>, NotMade> {
        let running = self.all().iter().filter(|vm| vm.state() != State::Paused).count();
        let starting = self.starting.fetch_add(1, Ordering::SeqCst);
        let place = Place(&self.starting);
        match self.options.maximum_running {
            Some(maximum) if running + starting >= maximum => Err(NotMade::NoCapacity(maximum)),
            _ => Ok(place),
        }
    }

    /// Makes a machine.
    pub(super) async fn make(self: &Arc<Self>, wish: Wish, timeout: Duration) -> Result<Arc<Vm>, NotMade> {
        let _place = self.place()?;
        let id = format!("i{}", &uuid::Uuid::new_v4().simple().to_string()[..19]);
        let token = uuid::Uuid::new_v4().simple().to_string();
        let folder = self.root.join(&id);
        let template = self.options.templates.get(&wish.template).cloned().unwrap_or_default();
        let settings = Settings { token: token.clone(), envs: wish.envs.clone() };
        let started = Process::start(&folder, &template, &self.envd, &settings).await;
        let process = started.map_err(NotMade::Failed)?;
        let vm = Arc::new(Vm {
            id,
            wish,
            token,
            folder,
            process,
            standing: Mutex::new(Standing::new(timeout)),
            transition: tokio::sync::Mutex::default(),
            rescheduled: tokio::sync::Notify::new(),
            measured: Mutex::new((Instant::now(), 0)),
        });
        held(&self.machines).insert(vm.id.clone(), Arc::clone(&vm));
        self.created.fetch_add(1, Ordering::SeqCst);
        self.tasks.spawn(Arc::clone(self).attend(Arc::clone(&vm)));
        Ok(vm)
    }

    /// Lives as long as the machine: acts when its time is over, and notices when it has ended by itself.
    async fn attend(self: Arc<Self>, vm: Arc<Vm>) {
        while !vm.is_gone() {
            let over = async {
                match vm.deadline() {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => self.expire(&vm).await,
                () = vm.rescheduled.notified() => {}
                () = vm.process.ended() => self.lose(&vm.id),
            }
        }
    }

    async fn expire(&self, vm: &Arc<Vm>) {
        let _transition = vm.transition.lock().await;
        if !vm.is_over() {
            return; // Somebody was faster, and gave it more time.
        }
        if !vm.wish.auto_pause || vm.pause().await == Err(NotPaused::Failed) {
            self.forget(vm);
        }
    }

    /// Pauses a machine, once nobody else changes it.
    pub(super) async fn pause(&self, vm: &Arc<Vm>) -> Result<(), NotPaused> {
        let _transition = vm.transition.lock().await;
        vm.pause().await
    }

    /// Wakes a machine if it is paused; says whether it was.
    pub(super) async fn resume(&self, vm: &Arc<Vm>, timeout: Duration) -> Result<bool, NotMade> {
        let _transition = vm.transition.lock().await;
        if vm.state() != State::Paused {
            return Ok(false);
        }
        let _place = self.place()?;
        vm.resume(timeout);
        Ok(true)
    }

    /// Kills a machine, once nobody else changes it; says whether it was there.
    pub(super) async fn kill(&self, vm: &Arc<Vm>) -> bool {
        let _transition = vm.transition.lock().await;
        let was_there = !vm.is_gone();
        self.forget(vm);
        was_there
    }

    /// Kills a machine at once, whatever is being done to it.
    pub(super) fn lose(&self, id: &str) {
        if let Some(vm) = self.get(id) {
            self.forget(&vm);
        }
    }

    fn forget(&self, vm: &Arc<Vm>) {
        held(&self.machines).remove(&vm.id);
        vm.kill();
        if self.options.removes_folders {
            _ = fs::remove_dir_all(&vm.folder); // What cannot be removed goes with the server.
        }
    }

    /// Kills all of them: the end of the server.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *held(&self.machines));
        all.values().for_each(|vm| vm.kill());
    }
}
