//! The operating system's keychain.

use keyring::v1::Entry;

use super::{CredentialKind, Error, Secret, Secrets};

/// Under which name our secrets stand in the keychain.
const SERVICE: &str = "dev.codecourier.app";

/// How a person gets a keychain where there is none.
const REMEDY: &str = if cfg!(target_os = "linux") {
    "Start a secret service (GNOME Keyring, KWallet or KeePassXC) and then CodeCourier again, or keep the key for this session only"
} else {
    "Sign in to the desktop and start CodeCourier again, or keep the key for this session only"
};

/// Keychain Services on macOS, the Credential Manager on Windows, the Secret Service elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keychain;

impl Keychain {
    /// Whether there is a keychain. It is asked once per process: one that is started later is found after a restart.
    pub fn status() -> Result<(), Error> {
        match Entry::store_status() {
            Ok(()) => Ok(()),
            Err(error) => Err(Error::NoKeychain { reason: error.to_string(), remedy: REMEDY }),
        }
    }

    fn entry(kind: CredentialKind) -> Result<Entry, Error> {
        Self::status()?;
        Entry::new(SERVICE, kind.code()).map_err(|error| told(error, kind))
    }
}

impl Secrets for Keychain {
    fn get(&self, kind: CredentialKind) -> Result<Secret, Error> {
        Self::entry(kind)?.get_password().map(Secret::new).map_err(|error| told(error, kind))
    }

    fn set(&self, kind: CredentialKind, secret: &Secret) -> Result<(), Error> {
        Self::entry(kind)?.set_password(secret.expose()).map_err(|error| told(error, kind))
    }

    fn remove(&self, kind: CredentialKind) -> Result<(), Error> {
        match Self::entry(kind)?.delete_credential() {
            Err(keyring::v1::Error::NoEntry) => Ok(()),
            removed => removed.map_err(|error| told(error, kind)),
        }
    }
}

/// The keychain's error in our words. Some of its variants carry the secret: none of them is printed whole.
fn told(error: keyring::v1::Error, kind: CredentialKind) -> Error {
    use keyring::v1::Error as E;
    match error {
        E::NoEntry => Error::NotFound(kind),
        E::NoStorageAccess(reason) => Error::Locked { reason: reason.to_string() },
        E::NoDefaultStore => Error::NoKeychain { reason: "it could not be opened".to_owned(), remedy: REMEDY },
        E::PlatformFailure(reason) => {
            let reason = reason.to_string();
            // The bus is there, but nobody on it is a secret service; or it went away.
            let nobody = ["ServiceUnknown", "NameHasNoOwner", "NoServer", "Disconnected", "I/O error"];
            if nobody.iter().any(|sign| reason.contains(sign)) {
                Error::NoKeychain { reason, remedy: REMEDY }
            } else {
                Error::Failed(reason)
            }
        }
        E::BadEncoding(_) | E::BadDataFormat(..) => Error::Failed("what is stored is no text".to_owned()),
        E::Ambiguous(_) => Error::Failed(format!("more than one {kind} is stored")),
        other => Error::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_and_never_hold_the_secret() {
        let kind = CredentialKind::AnthropicKey;
        let failure = |text: &str| keyring::v1::Error::PlatformFailure(text.into());
        assert!(matches!(told(keyring::v1::Error::NoEntry, kind), Error::NotFound(_)));
        assert!(matches!(told(keyring::v1::Error::NoStorageAccess("locked".into()), kind), Error::Locked { .. }));
        assert!(matches!(
            told(failure("org.freedesktop.DBus.Error.ServiceUnknown: …"), kind),
            Error::NoKeychain { .. }
        ));
        assert!(matches!(told(failure("something else"), kind), Error::Failed(_)));
        let leaked = told(keyring::v1::Error::BadEncoding(b"sk-ant-canary".to_vec()), kind);
        assert!(!format!("{leaked:?} {leaked}").contains("canary"));
    }
}
