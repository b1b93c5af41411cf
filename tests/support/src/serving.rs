//! A server on a thread of its own, gone with its value.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use anyhow::Context;
use axum::Router;
use tokio::{net::TcpListener, sync::oneshot};

/// A running server, on loopback.
#[derive(Debug)]
pub(crate) struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Starts on `port`; 0 takes a free one. `router` is told the address before the first request.
    pub(crate) fn start(name: &str, port: u16, router: impl FnOnce(SocketAddr) -> Router) -> anyhow::Result<Self> {
        // Nothing here waits, so that a test may call it from within a runtime of its own.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("could not listen on port {port}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let router = router(address);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Dropping the runtime ends every connection, the silent ones too.
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("the runtime takes sockets");
                tokio::select! {
                    _ = axum::serve(listener, router) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Serving { address, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server ends, that is for ever.
    pub(crate) fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            _ = thread.join(); // It ends by a panic at worst, and that is printed.
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            _ = stop.send(()); // The thread may have ended by itself.
        }
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A panic elsewhere must not hide what was seen.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
