//! Secrets for this session only.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{CredentialKind, Error, Secret, Secrets};

/// Keeps secrets in memory until the application ends: for machines without a keychain.
#[derive(Debug, Default)]
pub struct SessionOnly {
    secrets: Mutex<HashMap<CredentialKind, Secret>>,
}

impl SessionOnly {
    fn secrets(&self) -> MutexGuard<'_, HashMap<CredentialKind, Secret>> {
        // A map is whole after every call, also after one that panicked.
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secrets for SessionOnly {
    fn get(&self, kind: CredentialKind) -> Result<Secret, Error> {
        self.secrets().get(&kind).cloned().ok_or(Error::NotFound(kind))
    }

    fn set(&self, kind: CredentialKind, secret: &Secret) -> Result<(), Error> {
        self.secrets().insert(kind, secret.clone());
        Ok(())
    }

    fn remove(&self, kind: CredentialKind) -> Result<(), Error> {
        self.secrets().remove(&kind);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_kept_until_it_is_removed() {
        let secrets = SessionOnly::default();
        let kind = CredentialKind::ClaudeOauthToken;
        assert!(matches!(secrets.get(kind), Err(Error::NotFound(_))));
        secrets.set(kind, &Secret::new("one")).unwrap();
        secrets.set(kind, &Secret::new("two")).unwrap();
        assert_eq!(secrets.get(kind).unwrap().expose(), "two");
        assert!(!format!("{secrets:?}").contains("two"));
        secrets.remove(kind).unwrap();
        secrets.remove(kind).unwrap();
        assert!(matches!(secrets.get(kind), Err(Error::NotFound(_))));
    }
}
