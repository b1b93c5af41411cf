//! `courier-keeper`: see the library.

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    courier_keeper::main(&words)
}
