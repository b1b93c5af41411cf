//! The worker: one request on standard input, one answer on standard output.

fn main() {}
