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
        let listener = listen(port)?;
        let router = router(listener.local_addr()?);
        Serving::on(listener, name, |listener| async {
            _ = axum::serve(listener, router).await; // It serves for ever.
        })
    }

    /// The same for a server that takes its connections itself.
    #[cfg(target_os = "linux")]
    pub(crate) fn run<F: Future<Output = ()>>(
        name: &str,
        port: u16,
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) -> anyhow::Result<Self> {
        Serving::on(listen(port)?, name, serve)
    }

    fn on<F: Future<Output = ()>>(
        listener: std::net::TcpListener,
        name: &str,
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) -> anyhow::Result<Self> {
        // Nothing here waits, so that a test may call it from within a runtime of its own.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Dropping the runtime ends every connection, the silent ones too.
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("the runtime takes sockets");
                tokio::select! {
                    () = serve(listener) => {}
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

fn listen(port: u16) -> anyhow::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("could not listen on port {port}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A panic elsewhere must not hide what was seen.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
