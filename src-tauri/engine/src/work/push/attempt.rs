//! One push by git2. Blocking.

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use git2::{
    CertificateCheckStatus, Cred, CredentialType, ErrorClass, ErrorCode, Oid, ProxyOptions, PushOptions, PushUpdate,
    RemoteCallbacks, RemoteRedirect, Repository,
};

use super::{
    Change, Error, Reason,
    address::Address,
    agent,
    known_hosts::{self, Verdict},
    look::{SAID, USER},
};
use crate::{net, secrets::Secret};

/// How much of what a remote prints is listened to, in bytes.
const HEARD: usize = 64 * 1024;

pub(super) struct Attempt {
    pub(super) repository: PathBuf,
    pub(super) address: Address,
    pub(super) token: Option<Secret>,
    pub(super) known_hosts: Option<PathBuf>,
    pub(super) source: String,
    pub(super) destination: String,
    /// Nobody waits for it any more.
    pub(super) is_given_up: Arc<AtomicBool>,
}

pub(super) struct Taken {
    pub(super) commit: Oid,
    pub(super) change: Change,
    pub(super) said: String,
}

/// What the callbacks met.
#[derive(Default)]
struct Seen {
    heard: RefCell<Vec<u8>>,
    /// Per reference: what the remote says of it, nothing if it took it.
    reports: RefCell<Vec<(String, Option<String>)>>,
    /// What the branch was, once both sides had told.
    before: Cell<Option<Oid>>,
    /// Why a callback refused to go on: more to the point than what libgit2 makes of it.
    stopped: RefCell<Option<Error>>,
    times_asked: Cell<u32>,
}

impl Seen {
    fn stop(&self, error: Error) -> git2::Error {
        *self.stopped.borrow_mut() = Some(error);
        git2::Error::new(ErrorCode::User, ErrorClass::Callback, "stopped")
    }
}

impl Attempt {
    /// # Errors
    /// Why it was not taken.
    pub(super) fn push(&self) -> Result<Taken, Error> {
        super::super::isolate_git();
        let failed = |error: git2::Error| Error::new(Reason::of_git(&error), self.plain(error.message()));
        let local = |error: git2::Error| Error::new(Reason::Failed, self.plain(error.message()));
        let repository = Repository::open_bare(&self.repository).map_err(local)?;
        let (source, destination) = (format!("refs/heads/{}", self.source), format!("refs/heads/{}", self.destination));
        let commit = match repository.find_reference(&source).and_then(|found| found.peel_to_commit()) {
            Ok(commit) if git2::Reference::is_valid_name(&destination) => commit.id(),
            _ => return Err(Error::new(Reason::NoSuchBranch, source)),
        };
        let url = self.address.text();
        if leads_elsewhere(&repository).map_err(local)? {
            return Err(Error::new(Reason::Failed, "the vault's configuration leads elsewhere"));
        }
        let mut remote = repository.remote_anonymous(&url).map_err(failed)?;
        let seen = Seen::default();
        let mut proxy = ProxyOptions::new();
        if !self.address.is_loopback() {
            proxy.auto();
        }
        let mut options = PushOptions::new();
        options
            .remote_callbacks(self.callbacks(&seen, commit))
            .proxy_options(proxy)
            .follow_redirects(RemoteRedirect::None);
        let pushed = remote.push(&[format!("{source}:{destination}")], Some(&mut options));
        drop(options);
        self.judge(pushed, &seen, commit, &destination)
    }

    fn judge(
        &self,
        pushed: Result<(), git2::Error>,
        seen: &Seen,
        commit: Oid,
        destination: &str,
    ) -> Result<Taken, Error> {
        let said = self.plain(&String::from_utf8_lossy(&seen.heard.borrow()));
        let before = seen.before.get();
        // The callback stopped it because there was nothing to do.
        if before == Some(commit) && seen.stopped.borrow().is_none() {
            return Ok(Taken { commit, change: Change::None, said });
        }
        if let Some(error) = seen.stopped.take() {
            return Err(error);
        }
        let reports = seen.reports.borrow();
        let refusals: Vec<&str> = reports.iter().filter_map(|(_, refusal)| refusal.as_deref()).collect();
        if !refusals.is_empty() {
            let words = self.plain(&format!("{}\n{}", refusals.join("\n"), said));
            return Err(Error::new(Reason::of_words(&words).unwrap_or(Reason::Declined), words));
        }
        if let Err(error) = pushed {
            let words = self.plain(&format!("{said}\n{}", error.message()));
            let reason = match Reason::of_git(&error) {
                // Those libgit2 is sure of.
                known @ (Reason::NotFastForward | Reason::Tls | Reason::TimedOut | Reason::UnknownHost) => known,
                other => Reason::of_words(&words).unwrap_or(other),
            };
            return Err(Error::new(reason, words));
        }
        if !reports.iter().any(|(name, _)| name == destination) {
            return Err(Error::new(Reason::Failed, "the remote does not report that it took the branch"));
        }
        let is_new = before.is_none_or(|before| before.is_zero());
        Ok(Taken { commit, change: if is_new { Change::Created } else { Change::Updated }, said })
    }

    fn callbacks<'a>(&'a self, seen: &'a Seen, commit: Oid) -> RemoteCallbacks<'a> {
        let mut callbacks = RemoteCallbacks::new();
        callbacks
            .credentials(move |asked, user, allowed| self.credentials(seen, asked, user, allowed))
            .certificate_check(move |certificate, host| self.check_host(seen, certificate, host))
            .push_negotiation(move |updates: &[PushUpdate<'_>]| {
                if self.is_given_up.load(Ordering::Relaxed) {
                    return Err(seen.stop(Error::new(Reason::Cancelled, "")));
                }
                seen.before.set(updates.first().map(PushUpdate::src));
                if updates.iter().all(|update| update.src() == commit) {
                    return Err(git2::Error::new(ErrorCode::User, ErrorClass::Callback, "up to date"));
                }
                Ok(())
            })
            .sideband_progress(move |bytes| {
                let mut heard = seen.heard.borrow_mut();
                let room = HEARD - heard.len();
                heard.extend_from_slice(&bytes[..bytes.len().min(room)]);
                !self.is_given_up.load(Ordering::Relaxed)
            })
            .push_update_reference(move |name, refusal| {
                seen.reports.borrow_mut().push((name.to_owned(), refusal.map(|words| self.plain(words))));
                Ok(())
            });
        callbacks
    }

    /// Answers once, and the recorded address only.
    fn credentials(
        &self,
        seen: &Seen,
        asked: &str,
        user: Option<&str>,
        allowed: CredentialType,
    ) -> Result<Cred, git2::Error> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return Err(seen.stop(Error::new(Reason::Cancelled, "")));
        }
        if !self.address.is_same(asked) {
            return Err(seen.stop(Error::new(Reason::Moved, format!("to {}", self.plain(asked)))));
        }
        match (&self.address, &self.token) {
            (Address::Ssh { user: ours, .. }, _) if allowed.is_username() => return Cred::username(ours),
            _ => {}
        }
        seen.times_asked.set(seen.times_asked.get() + 1);
        let is_first = seen.times_asked.get() == 1;
        match (&self.address, &self.token) {
            (Address::Ssh { user: ours, .. }, _) if is_first && allowed.is_ssh_key() => {
                Cred::ssh_key_from_agent(user.unwrap_or(ours))
            }
            (Address::Ssh { .. }, _) => Err(seen.stop(match agent::keys() {
                None => Error::new(Reason::NoAgent, ""),
                Some(0) => Error::new(Reason::KeyRefused, "the agent has no key"),
                Some(keys) => Error::new(Reason::KeyRefused, format!("the agent has {keys}")),
            })),
            (Address::Web(_), Some(token)) if is_first && allowed.is_user_pass_plaintext() => {
                Cred::userpass_plaintext(USER, token.expose())
            }
            (Address::Web(_), Some(_)) => Err(seen.stop(Error::new(Reason::TokenRefused, ""))),
            _ => Err(seen.stop(Error::new(Reason::NoToken, ""))),
        }
    }

    /// Beside libgit2's own check, which is asked in any case: says in what a host's key is wrong.
    fn check_host(
        &self,
        seen: &Seen,
        certificate: &git2::cert::Cert<'_>,
        host: &str,
    ) -> Result<CertificateCheckStatus, git2::Error> {
        let (Some(shown), Address::Ssh { host: ours, port, .. }) = (certificate.as_hostkey(), &self.address) else {
            return Ok(CertificateCheckStatus::CertificatePassthrough);
        };
        let Some(known_hosts) = &self.known_hosts else { return Ok(CertificateCheckStatus::CertificatePassthrough) };
        if !host.eq_ignore_ascii_case(ours) {
            return Err(seen.stop(Error::new(Reason::Moved, format!("to {}", self.plain(host)))));
        }
        let (kind, key) = (shown.hostkey_type().map_or("", |kind| kind.name()), shown.hostkey().unwrap_or_default());
        // No file knows nobody.
        let file = std::fs::read(known_hosts).unwrap_or_default();
        let verdict = known_hosts::judge(&String::from_utf8_lossy(&file), ours, *port, kind, key);
        let told = || format!("{kind}, fingerprint {}", fingerprint(shown.hash_sha256()));
        match verdict {
            Verdict::Known => Ok(CertificateCheckStatus::CertificatePassthrough),
            Verdict::Unknown => Err(seen.stop(Error::new(Reason::UnknownHost, told()))),
            Verdict::Changed | Verdict::Revoked => Err(seen.stop(Error::new(Reason::ChangedHost, told()))),
        }
    }

    fn plain(&self, text: &str) -> String {
        net::plain(text, self.token.as_ref(), SAID)
    }
}

/// Whether the repository's own configuration has a word in where things go: an anonymous remote still meets `insteadOf`,
/// and the way to a proxy is read from there. Ours has none of it.
fn leads_elsewhere(repository: &Repository) -> Result<bool, git2::Error> {
    let config = repository.config()?.snapshot()?;
    let mut entries = config.entries(None)?;
    while let Some(entry) = entries.next() {
        let name = String::from_utf8_lossy(entry?.name_bytes()).to_ascii_lowercase();
        if ["url.", "http.", "https.", "remote.", "include.", "includeif."].iter().any(|part| name.starts_with(part)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// As `ssh` shows it.
fn fingerprint(hash: Option<&[u8; 32]>) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
    hash.map_or_else(|| "unknown".to_owned(), |hash| format!("SHA256:{}", STANDARD_NO_PAD.encode(hash)))
}
