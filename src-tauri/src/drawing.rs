//! How the window is drawn on Linux.
//!
//! WebKitGTK composes layers through OpenGL. Without a graphics processor OpenGL itself is computed, with twice the
//! memory and several times the work of drawing directly, and fast output then reaches the screen late.

use std::path::Path;

/// WebKitGTK's own switch; whoever set it, to whatever, has decided.
const VARIABLE: &str = "WEBKIT_DISABLE_COMPOSITING_MODE";

/// Where the kernel shows what can draw.
const DEVICES: &str = "/dev/dri";

/// Lets the web view draw directly where nothing could compose for it. Call it first of all.
pub(crate) fn choose() {
    if std::env::var_os(VARIABLE).is_none() && !has_graphics_processor(DEVICES.as_ref()) {
        // SAFETY: the program has only just begun and has one thread; nobody reads the environment meanwhile.
        unsafe { std::env::set_var(VARIABLE, "1") };
    }
}

fn has_graphics_processor(devices: &Path) -> bool {
    let entries = std::fs::read_dir(devices).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graphics_processor_is_a_device_that_renders() {
        let devices = tempfile::tempdir().unwrap();
        assert!(!has_graphics_processor(&devices.path().join("none")));
        std::fs::write(devices.path().join("card0"), "").unwrap();
        assert!(!has_graphics_processor(devices.path()), "a card that only shows pictures");
        std::fs::write(devices.path().join("renderD128"), "").unwrap();
        assert!(has_graphics_processor(devices.path()));
    }
}
