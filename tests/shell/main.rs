//! The shell on Tauri's mock runtime: no window, no display.

use std::path::Path;

#[test]
fn bindings_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/lib/ipc/bindings.ts");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    codecourier_shell::ipc::surface::<tauri::Wry>().export(specta_typescript::Typescript::default(), &path).unwrap();
    let after = std::fs::read_to_string(&path).unwrap();
    assert_eq!(before, after, "bindings.ts was stale; it is regenerated now, commit it");
}
