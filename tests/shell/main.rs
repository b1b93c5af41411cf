//! The shell on Tauri's mock runtime: no window, no display. (`cfg(test)` tells the lints that these are tests.)

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use courier_engine::{
        engine::{Config, Engine},
        host::{Host, Person},
        model::SystemClock,
        secrets::SessionOnly,
    };
    use serde_json::{Value, json};
    use tauri::{
        WebviewWindow,
        ipc::{CallbackFn, InvokeBody},
        test::{INVOKE_KEY, MockRuntime, get_ipc_response, mock_builder, mock_context, noop_assets},
        webview::InvokeRequest,
    };
    use tempfile::TempDir;

    #[test]
    fn bindings_are_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/lib/ipc/bindings.ts");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        codecourier_shell::ipc::surface::<tauri::Wry>()
            .export(specta_typescript::Typescript::default(), &path)
            .unwrap();
        let after = std::fs::read_to_string(&path).unwrap();
        assert_eq!(before, after, "bindings.ts was stale; it is regenerated now, commit it");
    }

    /// A window over an engine that has no provider.
    fn window(home: &TempDir) -> WebviewWindow<MockRuntime> {
        let host = Host::new(home.path().to_owned(), Arc::new(SessionOnly::default()), Person::default());
        let config = Config { host, clock: Arc::new(SystemClock), providers: Vec::new() };
        let engine = tauri::async_runtime::block_on(Engine::open(config)).unwrap();
        let app = mock_builder()
            .manage(engine)
            .invoke_handler(codecourier_shell::ipc::surface().invoke_handler())
            .build(mock_context(noop_assets()))
            .unwrap();
        tauri::WebviewWindowBuilder::new(&app, "main", tauri::WebviewUrl::default()).build().unwrap()
    }

    fn invoke(window: &WebviewWindow<MockRuntime>, command: &str, arguments: Value) -> Result<Value, Value> {
        let request = InvokeRequest {
            cmd: command.into(),
            callback: CallbackFn(0),
            error: CallbackFn(1),
            url: if cfg!(windows) { "http://tauri.localhost" } else { "tauri://localhost" }.parse().unwrap(),
            body: InvokeBody::Json(arguments),
            headers: tauri::http::HeaderMap::default(),
            invoke_key: INVOKE_KEY.to_string(),
        };
        get_ipc_response(window, request).map(|body| body.deserialize().unwrap())
    }

    #[test]
    fn a_command_answers_in_the_windows_own_words() {
        let home = TempDir::new().unwrap();
        let window = window(&home);
        let project = invoke(&window, "project_sample", json!({})).unwrap();
        assert_eq!((&project["isSample"], &project["activeSandboxes"]), (&json!(true), &json!(0)));
        let defaults = invoke(&window, "project_defaults", json!({ "project": project["id"] })).unwrap();
        assert_eq!((&defaults["agent"], &defaults["timeoutMinutes"]), (&json!("shell"), &json!(15.0)));
        let query = json!({ "query": { "project": null, "statuses": [], "search": null, "after": null, "limit": 50 } });
        assert_eq!(invoke(&window, "sandbox_list", query).unwrap()["total"], 0);
    }

    #[test]
    fn an_error_reaches_the_window_with_its_code_and_remedy() {
        let home = TempDir::new().unwrap();
        let window = window(&home);
        let nowhere = "01a228e4-1331-736e-954f-9721b578b557";
        assert_eq!(invoke(&window, "sandbox_stop", json!({ "id": nowhere })).unwrap_err()["code"], "notFound");
        assert_eq!(invoke(&window, "sandbox_stop", json!({ "id": "nope" })).unwrap_err()["code"], "invalid");
        let add = json!({ "source": home.path().join("gone"), "name": null });
        let error = invoke(&window, "project_add", add).unwrap_err();
        assert_eq!(error["code"], "pathMissing");
        assert!(error["detail"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{error}");
    }

    #[test]
    fn a_secret_goes_in_and_never_comes_out() {
        let home = TempDir::new().unwrap();
        let window = window(&home);
        let secret = "sk-ant-api03-a-canary-that-must-not-come-back";
        let set = json!({ "kind": "anthropic_key", "secret": secret, "sessionOnly": true });
        let answer = invoke(&window, "credential_set", set).unwrap();
        assert_eq!((&answer["isSet"], &answer["lastFour"]), (&json!(true), &json!("back")));
        for command in ["credential_list", "agent_list", "settings_get"] {
            let said = invoke(&window, command, json!({})).unwrap().to_string();
            assert!(!said.contains("canary"), "{command}: {said}");
        }
    }
}
