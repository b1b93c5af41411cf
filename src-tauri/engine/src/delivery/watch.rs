//! Watches open pull requests until they are merged or closed: one conditional request per repository and round.

use std::{collections::HashMap, time::Duration};

use super::pull_request;
use crate::{
    forge::{
        Error, Forge, GitHub, Host, Reason, State,
        watch::{Look, Place, Watch},
    },
    model::{PullRequestStatus, SandboxId},
    sandbox::Surroundings,
    settings::Settings,
    store::{self, deliveries, projects, sandboxes},
};

/// How long to wait before the database is asked again, where it did not answer.
const AGAIN: Duration = Duration::from_secs(60);

/// Whose pull request it is. Two sandboxes can share one: run again on the same branch.
type Watched = HashMap<(Place, u64), Vec<SandboxId>>;

/// Watches until the engine shuts down.
pub(crate) fn start(around: &Surroundings) {
    let around = around.clone();
    around.tasks.clone().spawn(async move {
        let shutdown = around.shutdown.clone();
        let mut watch = Watch::default();
        let mut watched = Watched::new();
        loop {
            if let Err(error) = take_in(&around, &mut watch, &mut watched).await {
                tracing::warn!(%error, "pull requests to watch could not be read");
                if shutdown.run_until_cancelled(tokio::time::sleep(AGAIN)).await.is_none() {
                    return;
                }
            }
            while let Some(look) = watch.take(around.clock.now()) {
                match shutdown.run_until_cancelled(look_at(&around, &mut watch, &watched, look)).await {
                    None => return,
                    Some(Ok(())) => {}
                    Some(Err(error)) => tracing::warn!(%error, "what became of a pull request could not be stored"),
                }
            }
            let next = watch.next().map(|at| at.since(around.clock.now()));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = around.deliverer.more_to_watch() => {}
                () = async { match next {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                } } => {}
            }
        }
    });
}

/// Takes in what is to be watched by now.
async fn take_in(around: &Surroundings, watch: &mut Watch, watched: &mut Watched) -> Result<(), store::Error> {
    let enterprise = Settings::load(&around.store).await?.github_enterprise();
    let rows = around
        .store
        .read(|connection| {
            let rows = deliveries::watched(connection)?.into_iter().map(|id| {
                let row = sandboxes::get(connection, id)?;
                let remote = projects::get(connection, row.project)?.remote_url;
                Ok::<_, store::Error>((row, remote))
            });
            rows.collect::<Result<Vec<_>, _>>()
        })
        .await?;
    watched.clear();
    for (row, remote) in rows {
        let (Some(remote), Some(request)) = (remote, row.pull_request) else { continue };
        let (Forge::GitHub { host, repository }, Some(number)) =
            (Forge::of(&remote, enterprise.as_ref()), request.number)
        else {
            continue;
        };
        let place = (host.name().to_owned(), repository);
        let state = match (request.status, request.is_closed) {
            (PullRequestStatus::Merged, _) => State::Merged,
            (_, true) => State::Closed,
            (_, false) => State::Open,
        };
        watch.begin(place.clone(), number, state, around.clock.now());
        watched.entry((place, number)).or_default().push(row.id);
    }
    Ok(())
}

async fn look_at(around: &Surroundings, watch: &mut Watch, watched: &Watched, look: Look) -> Result<(), store::Error> {
    let enterprise = Settings::load(&around.store).await?.github_enterprise();
    let host = [Some(Host::github()), enterprise].into_iter().flatten().find(|host| host.name() == look.place.0);
    let (Some(host), now) = (host, around.clock.now()) else { return Ok(()) };
    let Ok(Some(token)) = around.host.stored(host.credential()).await else {
        watch.failed(&look.place, &no_token(), now);
        return Ok(());
    };
    let asked = match GitHub::new(host, token.secret) {
        Ok(github) => github.changed(&look).await,
        Err(error) => Err(error),
    };
    let now = around.clock.now();
    let changes = match asked {
        Ok(answer) => watch.answered(&look.place, answer, now),
        Err(error) => {
            watch.failed(&look.place, &error, now);
            return Ok(());
        }
    };
    for change in changes {
        for &id in watched.get(&(look.place.clone(), change.number)).into_iter().flatten() {
            let row = around.store.read(move |connection| sandboxes::get(connection, id)).await?;
            let url = row.pull_request.and_then(|known| known.url).unwrap_or_default();
            pull_request::set(around, id, pull_request::known(change.to, url, change.number)).await?;
        }
    }
    Ok(())
}

/// Nobody can ask without one; it is looked for again as after any failure.
fn no_token() -> Error {
    Error { reason: Reason::TokenRefused, status: None, said: String::new(), wait: None, link: None }
}
