//! Starting programs.

mod install;
mod spawn;

pub(crate) use install::install;
pub(crate) use spawn::{helper, outliving};
