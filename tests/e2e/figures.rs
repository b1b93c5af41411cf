//! Figures of long runs, one line of JSON each, and what is computed of them.

use serde_json::json;

/// Prints a figure, where there is one beside what it is measured against.
#[expect(clippy::print_stdout, reason = "figures are read from standard output")]
pub(crate) fn figure(name: &str, value: f64, unit: &str, against: Option<f64>) {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let ratio = against.map(|other| round(value / other));
    println!(
        "{}",
        json!({"name": name, "value": round(value), "unit": unit, "against": against.map(round), "ratio": ratio})
    );
}

/// How long a run is to be: what the environment says, else as given.
pub(crate) fn size(given: u64) -> u64 {
    std::env::var("COURIER_PROOF_SIZE").ok().and_then(|size| size.parse().ok()).unwrap_or(given)
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// The slope of the line that lies nearest to all points (least squares).
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = number(points.len());
    let mean = |which: fn(&(f64, f64)) -> f64| points.iter().map(which).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    together / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}

#[test]
fn the_slope_is_that_of_the_line_through_the_points() {
    let points = [(0.0, 1.0), (1.0, 3.5), (2.0, 4.5), (3.0, 7.0)];
    assert!((slope(&points) - 1.9).abs() < 1e-9, "rise over run, as if drawn by hand");
}
