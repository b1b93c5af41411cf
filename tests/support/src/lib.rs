//! Stand-ins and harness for the tests: a scripted model server, temporary repositories, a private desktop.

pub mod models;
