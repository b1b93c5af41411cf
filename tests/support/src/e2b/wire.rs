//! The connections of clients, each of which can be reset from within.

use std::{convert::Infallible, os::fd::AsRawFd, sync::Arc};

use axum::{body::Body, extract::Request, response::Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A client's connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(CancellationToken);

impl Wire {
    /// Resets it; nothing more is said.
    pub(super) fn reset(&self) {
        self.0.cancel();
    }

    /// Resets it and stops the request that is being answered on it.
    pub(super) async fn reset_here(&self) -> ! {
        self.reset();
        std::future::pending::<()>().await;
        unreachable!("what is pending does not go on")
    }
}

/// Takes connections for ever, and answers what comes on them.
pub(super) async fn serve<F>(listener: TcpListener, answer: impl Fn(Wire, Request) -> F + Send + Sync + 'static)
where
    F: Future<Output = Response> + Send + 'static,
{
    let (answer, tasks) = (Arc::new(answer), TaskTracker::new());
    loop {
        // A failure to accept is about that one connection.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let answer = Arc::clone(&answer);
        tasks.spawn(async move { connection(stream, &*answer).await });
    }
}

async fn connection<F>(stream: TcpStream, answer: &(impl Fn(Wire, Request) -> F + Send + Sync))
where
    F: Future<Output = Response> + Send + 'static,
{
    _ = stream.set_nodelay(true); // Without it small frames only come later.
    let (wire, socket) = (Wire::default(), stream.as_raw_fd());
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let answered = answer(wire.clone(), request.map(Body::new));
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new().half_close(false).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        () = wire.0.cancelled() => reset_when_closed(socket),
        _ = &mut connection => {} // However it ended, it has.
    }
}

/// Makes the kernel reset the connection when it is closed. The socket is open: its connection is still held.
fn reset_when_closed(socket: std::os::fd::RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = u32::try_from(size_of::<libc::linger>()).expect("it is small");
    // SAFETY: the pointer is to a value of this type and this size that outlives the call.
    unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size) };
}
