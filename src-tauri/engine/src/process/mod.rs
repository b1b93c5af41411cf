//! Starting programs.

mod spawn;

pub(crate) use spawn::{helper, outliving};
