//! The ground under the journeys: a display, a bus, a keychain and a driver that work without any of our own code.

use std::path::{Path, PathBuf};

use anyhow::Context;
use courier_test_support::processes;

use crate::journey::{Journey, journey};

const PAGE: &str = "data:text/html,<!doctype html><html data-ready=true><title>A page</title>\
    <button data-testid=button onclick=\"this.innerText='clicked'\">not yet</button>\
    <input data-testid=field><select data-testid=menu><option value=a>A</option><option value=b>B</option></select>\
    <p data-testid=late hidden>late</p><script>setTimeout(() => document.querySelector('p').hidden = false, 200)</script>";

#[test]
fn a_window_can_be_looked_at_and_touched() {
    journey("desktop", async |journey: &mut Journey| {
        let browser = browser().context("WebKitGTK comes with a small browser")?;
        let app = journey.open_program(&browser, &["--automation"]).await?;
        app.goto(PAGE).await?;
        app.is_ready().await?;
        app.click("button").await?;
        app.see_text("button", "clicked").await?;
        app.type_text("field", "typed ").await?;
        assert_eq!(app.see("field").await?.value, "typed ");
        app.fill("field", "filled ✓").await?;
        app.select("menu", "b").await?;
        assert_eq!(app.see("menu").await?.value, "b");
        app.see("late").await?;
        app.screenshot("page").await?;
        assert!(journey.desktop.variables().iter().any(|(name, _)| name == "DBUS_SESSION_BUS_ADDRESS"));
        journey.kill9().await
    });
}

#[test]
fn nothing_outlives_its_desktop() {
    let desktop = courier_test_support::desktop::Desktop::start().unwrap();
    let folder = desktop.folder().to_string_lossy().into_owned();
    let background = desktop.program("sh").args(["-c", "setsid sleep 1000 & echo started; wait"]);
    let (background, _) = background.start_and_read(std::time::Duration::from_secs(5)).unwrap();
    assert!(processes::mentioning(&folder).len() >= 4, "display, bus, keychain and what we started");
    drop(background);
    drop(desktop);
    assert_eq!(processes::mentioning(&folder), [], "the child in a session of its own is found by its environment");
}

fn browser() -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/libexec", "/usr/lib64", "/usr/lib"];
    folders.iter().map(|folder| Path::new(folder).join("webkit2gtk-4.1/MiniBrowser")).find(|path| path.is_file())
}
