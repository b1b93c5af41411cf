//! The way to a machine's daemon.

use std::{fs::File, io, os::fd::AsRawFd, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, header},
    response::Response,
};
use futures_util::{StreamExt, stream};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::{
    answers, create,
    envd::SOCKET,
    fleet::Fleet,
    vm::{State, Vm},
    wire::Wire,
};

/// Where a machine's daemon is.
const PORT: u16 = 49_983;
/// A socket's path may not be longer.
const LONGEST: usize = 100;

/// Whose a request is that is none of the control plane's: a machine and a port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: String,
    port: u16,
}

impl Target {
    /// By its headers, or by the host's name: `49983-<id>.<domain>`.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(id) = text("e2b-sandbox-id") {
            let port = text("e2b-sandbox-port").and_then(|port| port.parse().ok()).unwrap_or(PORT);
            return Some(Target { id: id.to_owned(), port });
        }
        let (port, id) = text("host")?.split('.').next()?.split_once('-')?;
        Some(Target { id: id.to_owned(), port: port.parse().ok()? })
    }
}

/// Passes a request to the machine, and its answer back. When the machine is paused or killed, the wire is cut.
pub(super) async fn answer(fleet: &Arc<Fleet>, target: &Target, wire: &Wire, request: Request) -> Response {
    let Some(vm) = fleet.get(&target.id) else { return answers::proxy_not_found(&target.id) };
    if vm.state() == State::Paused && vm.wish.auto_resume {
        _ = fleet.resume(&vm, Duration::from_secs(create::TIMEOUT)).await; // If not, it is still paused.
    }
    match vm.state() {
        State::Pausing => return answers::proxy_transitioning(&target.id),
        State::Paused => return answers::proxy_not_found(&target.id),
        State::Running if target.port != PORT => return answers::proxy_port_closed(&target.id, target.port),
        State::Running => {}
    }
    // From here on it is cut with the machine's other connections, until its answer has come or gone.
    let (open, done, cut) = (vm.open(), CancellationToken::new(), wire.clone());
    let ending = done.clone();
    fleet.tasks.spawn(async move {
        tokio::select! {
            () = open.cancelled() => cut.reset(),
            () = ending.cancelled() => {}
        }
    });
    let guard = done.drop_guard();
    match passed(fleet, &vm, request).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let pieces = stream::unfold((body.into_data_stream(), guard), async |(mut body, guard)| {
                Some((body.next().await?, (body, guard)))
            });
            Response::from_parts(head, Body::from_stream(pieces))
        }
        // It ended just now, and the cut is on its way.
        Err(_) => answers::proxy_not_found(&target.id),
    }
}

async fn passed(fleet: &Fleet, vm: &Vm, mut request: Request) -> anyhow::Result<Response> {
    let stream = connected(&vm.folder.join("run")).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    fleet.tasks.spawn(async move { _ = connection.await }); // Its end shows in the answer.
    let headers = request.headers_mut();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::EXPECT, header::UPGRADE] {
        headers.remove(name);
    }
    let response = sender.send_request(request).await?;
    Ok(response.map(Body::new))
}

async fn connected(folder: &Path) -> io::Result<UnixStream> {
    let path = folder.join(SOCKET);
    if path.as_os_str().len() < LONGEST {
        return UnixStream::connect(path).await;
    }
    // A short name for a folder whose path is long.
    let folder = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_PATH).open(folder)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd())).await
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_machine_is_named_by_headers_or_by_the_host() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let pairs =
                headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            Target::of(&pairs.collect())
        };
        let target = Some(Target { id: "iabc".to_owned(), port: PORT });
        assert_eq!(of(&[("e2b-sandbox-id", "iabc"), ("e2b-sandbox-port", "49983")]), target);
        assert_eq!(of(&[("host", "49983-iabc.e2b.localhost:3000")]), target);
        assert_eq!(of(&[("host", "127.0.0.1:3000")]), None);
    }
}
