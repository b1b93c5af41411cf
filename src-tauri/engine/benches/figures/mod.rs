//! What the benches share: figures, and how long something took.

use std::{
    io::{Write, stdout},
    time::{Duration, Instant},
};

/// Prints one figure as a line of JSON; `against` is what the floor or the peer reached in the same run.
pub fn print(name: &str, value: f64, unit: &str, against: Option<f64>) {
    let number = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.3}"));
    let (value, ratio) = (Some(value), against.map(|against| value / against));
    let line = format!(
        r#"{{"name":"{name}","value":{},"unit":"{unit}","against":{},"ratio":{}}}"#,
        number(value),
        number(against),
        number(ratio)
    );
    writeln!(stdout(), "{line}").expect("somebody reads the figures");
}

/// How long `work` took.
#[allow(dead_code, clippy::allow_attributes, reason = "not every bench takes the time of a function")]
pub async fn time<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let result = work.await;
    (result, begin.elapsed())
}
