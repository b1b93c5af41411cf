//! How WebKitGTK is set up on Linux: by variables that its processes inherit.
//!
//! It composes layers through OpenGL. Without a graphics processor OpenGL itself is computed, with twice the memory and
//! several times the work of drawing directly, and fast output then reaches the screen late.
//!
//! Its collector looks at young objects often and at all of them only when a page rests. While output streams the page never
//! does: what has left the screen stays in memory, some 20 MB more each minute (WebKitGTK 2.50). All that is alive is
//! about 10 MB, so each collection looks at everything: 25 ms every two seconds, most of it beside the page.

use std::path::Path;

/// Switches of WebKitGTK and of its JavaScriptCore; whoever set one, to whatever, has decided.
const NO_COMPOSING: &str = "WEBKIT_DISABLE_COMPOSITING_MODE";
const YOUNG_OBJECTS_APART: &str = "JSC_useGenerationalGC";

/// Where the kernel shows what can draw.
const DEVICES: &str = "/dev/dri";

/// Lets the web view draw directly where nothing could compose for it, and keep no garbage. Call it first of all.
pub(crate) fn set_up() {
    set(YOUNG_OBJECTS_APART, "false");
    if !has_graphics_processor(DEVICES.as_ref()) {
        set(NO_COMPOSING, "1");
    }
}

fn set(variable: &str, value: &str) {
    if std::env::var_os(variable).is_none() {
        // SAFETY: the program has only just begun and has one thread; nobody reads the environment meanwhile.
        unsafe { std::env::set_var(variable, value) };
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
