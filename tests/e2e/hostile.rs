//! What an agent prints, and what a repository calls its things, is hostile. Each attack is printed by a real sandbox
//! into the real window: none acts, and each shows something a person can make sense of.
//!
//! Markdown, tools and their answers come from a stand-in for Claude Code that prints what it is given; raw output comes
//! from a Shell sandbox. What an attack tries to do is call `canary()`, which marks the page, or reach a listener on
//! loopback, which counts.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use courier_test_support::repositories::Repository;
use serde_json::{Value, json};

use crate::{
    app::{App, DEADLINE},
    journey::{Journey, journey},
    steps::NewSandbox,
};

/// How soon a click is answered after each attack; the best of some, since the machine may be busy.
const ANSWERS: Duration = Duration::from_secs(1);

/// Arms the page. Whatever runs as a script can call `canary`; whatever asks or opens would be seen.
const ARM: &str = r#"
window.canaries = [];
window.canary = (what) => window.canaries.push(String(what ?? "called"));
for (const name of ["alert", "confirm", "prompt", "open", "print"]) window[name] = (what) => window.canaries.push(`${name} ${what}`);
// A list that is measured again within one picture is no harm.
for (const name of ["write", "writeText"]) navigator.clipboard[name] = async () => void window.canaries.push(`clipboard ${name}`);
document.execCommand = (name) => window.canaries.push(`command ${name}`);
for (const name of ["copy", "cut"]) document.addEventListener(name, () => window.canaries.push(`clipboard ${name}`), true);
window.addEventListener("error", (event) => { if (!event.message.startsWith("ResizeObserver loop")) window.canaries.push(`error ${event.message}`); });
window.addEventListener("unhandledrejection", (event) => window.canaries.push(`rejected ${event.reason}`));
document.addEventListener("securitypolicyviolation", (event) => window.canaries.push(`refused ${event.violatedDirective} ${event.blockedURI}`));
window.armedAt = location.href;"#;

/// What acted since, and what should not be in a page.
const HARM: &str = r##"
const harm = [...window.canaries];
if (location.href !== window.armedAt) harm.push(`went to ${location.href}`);
if (document.title !== "CodeCourier") harm.push(`the title is ${document.title}`);
const foreign = "script:not([type=module]), iframe, frame, object, embed, img, video, audio, form, base, meta[http-equiv], svg image, foreignObject, #clobbered, [name=clobbered], .clobbered, main style:not([data-testid='terminal'] *), main link, main a[href]";
for (const element of document.body.querySelectorAll(foreign)) harm.push(`drawn: ${element.outerHTML.slice(0, 100)}`);
for (const element of document.querySelectorAll("*")) for (const { name } of element.attributes) if (/^on/i.test(name)) harm.push(`a handler: ${element.outerHTML.slice(0, 100)}`);
for (const element of document.querySelectorAll("main *")) if (getComputedStyle(element).position === "fixed") harm.push(`stands over everything: ${element.outerHTML.slice(0, 100)}`);
if (document.body.scrollWidth > innerWidth || document.body.scrollHeight > innerHeight) harm.push("the window scrolls");
if (document.querySelectorAll('[data-testid="status-badge"], [data-testid="stop"]').length > 2) harm.push("an element bears another's name");
return harm"##;

/// From a click to the second picture after it, in milliseconds.
const ANSWER: &str = r#"
const done = arguments[arguments.length - 1];
const begun = performance.now();
document.querySelector('[data-testid="palette-open"]').click();
requestAnimationFrame(() => requestAnimationFrame(() => {
  const isOpen = document.querySelector('[data-testid="palette"]') !== null;
  document.querySelector("dialog[open]")?.dispatchEvent(new Event("cancel", { cancelable: true }));
  done([performance.now() - begun, isOpen]);
}));"#;

/// The stand-in for Claude Code, which prints what is put in place of the mark.
const PROGRAM: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo "2.1.332 (Claude Code)"; exit; fi
echo '{"type":"system","subtype":"init","session_id":"s","model":"m","tools":[],"cwd":"/"}'
@PRINTS@
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s","usage":{"input_tokens":1,"output_tokens":1}}'
"#;

/// The desktop under attack.
struct Range<'a> {
    journey: &'a Journey,
    app: &'a App,
    connections: Arc<AtomicUsize>,
    /// A web address of the listener's.
    address: String,
    number: usize,
}

/// A conversation block of the agent's.
fn text(text: &str) -> Value {
    json!({"type": "assistant", "message": {"id": uuid::Uuid::new_v4().to_string(), "role": "assistant", "content": [{"type": "text", "text": text}]}, "session_id": "s"})
}

fn tool(call: &str, name: &str, input: &Value) -> Value {
    json!({"type": "assistant", "message": {"id": uuid::Uuid::new_v4().to_string(), "role": "assistant", "content": [{"type": "tool_use", "id": call, "name": name, "input": input}]}, "session_id": "s"})
}

fn answer(call: &str, content: &str, is_error: bool) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error}]}, "session_id": "s"})
}

/// A command of the stand-in's that prints these lines.
fn print(lines: &[Value]) -> String {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    format!("cat <<'THE END OF WHAT IS PRINTED'\n{}\nTHE END OF WHAT IS PRINTED", lines.join("\n"))
}

impl Range<'_> {
    /// Lets the stand-in run these commands in a sandbox of its own, and waits until its turn has ended.
    async fn claude(&mut self, name: &str, prints: &str) -> anyhow::Result<()> {
        let program = self.journey.desktop.folder().join("agent").join("claude");
        fs::create_dir_all(program.parent().context("it lies in a folder")?)?;
        fs::write(&program, PROGRAM.replace("@PRINTS@", prints))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        self.begin(NewSandbox { prompt: name, agent: Some("claude"), ..NewSandbox::default() }).await
    }

    async fn shell(&mut self, script: &str) -> anyhow::Result<()> {
        self.begin(NewSandbox { prompt: script, ..NewSandbox::default() }).await
    }

    async fn begin(&mut self, new: NewSandbox<'_>) -> anyhow::Result<()> {
        self.app.create(new).await?;
        self.app.see_within("row-ended", "is there", 2 * DEADLINE, |_| true).await?;
        Ok(())
    }

    /// Nothing acted; a click is answered; here is what it looks like. The sandbox is then stopped.
    async fn is_unharmed(&mut self, name: &str) -> anyhow::Result<()> {
        self.number += 1;
        self.app.screenshot(&format!("{:02}-{name}", self.number)).await?;
        self.has_not_acted(name).await?;
        for tab in ["tab-terminal", "tab-conversation"] {
            self.app.click(tab).await?;
            self.has_not_acted(name).await?;
        }
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let (took, is_open): (f64, bool) = serde_json::from_value(self.app.script_async(ANSWER).await?)?;
            ensure!(is_open, "{name}: the palette opens at a click");
            best = best.min(took);
        }
        ensure!(best < ANSWERS.as_secs_f64() * 1000.0, "{name}: a click is answered after {best} ms");
        self.app.is_gone("palette").await?;
        self.has_not_acted(name).await?;
        self.app.click("stop").await?;
        self.app.is("killed").await
    }

    async fn has_not_acted(&self, name: &str) -> anyhow::Result<()> {
        let harm: Vec<String> = serde_json::from_value(self.app.script(HARM, vec![]).await?)?;
        ensure!(harm.is_empty(), "{name}: {harm:#?}");
        ensure!(self.app.windows().await? == 1, "{name}: another window is open");
        ensure!(self.connections.load(Ordering::SeqCst) == 0, "{name}: something was asked for over the network");
        Ok(())
    }

    /// Waits until a text stands somewhere in the conversation.
    async fn shows(&self, words: &str) -> anyhow::Result<()> {
        self.app.see_text("conversation", words).await?;
        Ok(())
    }

    /// Waits until a text stands in the raw terminal, and goes back to the conversation.
    async fn terminal_shows(&mut self, name: &str, words: &str) -> anyhow::Result<()> {
        self.app.click("tab-terminal").await?;
        self.app.see_text("terminal", words).await?;
        self.app.screenshot(&format!("{:02}-{name}-terminal", self.number + 1)).await?;
        self.app.click("tab-conversation").await
    }

    /// Opens every row that can be opened.
    async fn open_rows(&self) -> anyhow::Result<()> {
        let open = r#"for (const row of document.querySelectorAll('[data-testid="row-tool"][aria-expanded="false"], [data-testid="row-unknown"] > button[aria-expanded="false"], [data-testid="row-thinking"] > button[aria-expanded="false"]')) row.click()"#;
        self.app.script(open, vec![]).await?;
        Ok(())
    }

    /// To the beginning of the conversation.
    async fn to_the_start(&self) -> anyhow::Result<()> {
        self.app.script("document.querySelector('[data-testid=\"conversation\"]').scrollTop = 0", vec![]).await?;
        Ok(())
    }

    /// Clicks whatever in the conversation looks like a link or a word of one.
    async fn click_everything(&self) -> anyhow::Result<()> {
        let click = r#"for (const element of document.querySelectorAll('[data-testid="row-text"] :is(p, code, span, td, li)')) element.click()"#;
        self.app.script(click, vec![]).await?;
        Ok(())
    }
}

/// Counts who connects; nobody should.
fn listen() -> anyhow::Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = format!("http://{}", listener.local_addr()?);
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    std::thread::spawn(move || {
        while listener.accept().is_ok() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    Ok((address, connections))
}

#[test]
fn what_is_printed_shows_and_does_not_act() {
    journey("hostile", async |journey: &mut Journey| {
        let (address, connections) = listen()?;
        let app = journey.open().await?;
        app.open_sample().await?;
        let program = journey.desktop.folder().join("agent").join("claude");
        app.save_agent_path("claude", &program.to_string_lossy()).await?;
        app.save_key("anthropic_key", "sk-ant-api03-worthless-key-of-a-journey-7f3c").await?;
        app.show_sandboxes().await?;
        app.script(ARM, vec![]).await?;
        let mut range = Range { journey, app: &app, connections, address, number: 0 };
        // One that succeeds is told with all the others that do.
        let mut acted = vec![];
        for name in ATTACKS {
            if let Err(error) = attack(name, &mut range).await {
                app.screenshot(&format!("failure-{name}")).await?;
                acted.push(format!("{name}: {error:#}"));
                app.script("document.querySelector('dialog[open]')?.dispatchEvent(new Event('cancel', {cancelable: true})); window.canaries = []", vec![]).await?;
            }
        }
        ensure!(acted.is_empty(), "{acted:#?}");
        Ok(())
    });
}

const ATTACKS: [&str; 14] = [
    "markup",
    "pieces",
    "links",
    "lying-links",
    "remote",
    "styles",
    "directions",
    "nesting",
    "tangles",
    "clutter",
    "long-line",
    "sequences",
    "counts",
    "names",
];

async fn attack(name: &str, range: &mut Range<'_>) -> anyhow::Result<()> {
    match name {
        "markup" => markup(range).await,
        "pieces" => markup_in_pieces(range).await,
        "links" => links(range).await,
        "lying-links" => lying_links(range).await,
        "remote" => remote_content(range).await,
        "styles" => styles_and_names(range).await,
        "directions" => directions(range).await,
        "nesting" => nesting(range).await,
        "tangles" => tangles(range).await,
        "clutter" => clutter(range).await,
        "long-line" => a_long_line(range).await,
        "sequences" => sequences(range).await,
        "counts" => counts(range).await,
        "names" => names(range).await,
        _ => anyhow::bail!("there is no attack {name}"),
    }
}

const MARKUP: &str = r#"<script>canary("script")</script><img src=x onerror="canary('img')"><svg onload=canary(1)><iframe srcdoc="<script>parent.canary()</script>"></iframe><details open ontoggle=canary(2)><b onmouseover=canary(3)>bold</b><math><mtext></form><form><mglyph><style></math><img src onerror=canary(4)>"#;

async fn markup(range: &mut Range<'_>) -> anyhow::Result<()> {
    let lines = [
        text(&format!(
            "Before {MARKUP} after.\n\n{MARKUP}\n\n```html\n{MARKUP}\n```\n\n# {MARKUP}\n\n| {MARKUP} |\n|---|\n| {MARKUP} |\n\n`{MARKUP}` &lt;script&gt;canary('entity')&lt;/script&gt; &#60;img src=x onerror=canary(5)&#62;"
        )),
        tool("t1", MARKUP, &json!({"anything": MARKUP})),
        answer("t1", MARKUP, false),
        tool(
            "t2",
            "Edit",
            &json!({"file_path": format!("src/{MARKUP}.rs"), "old_string": MARKUP, "new_string": format!("{MARKUP} new")}),
        ),
        answer("t2", "done", false),
        tool("t3", "Bash", &json!({"command": format!("echo '{MARKUP}'"), "description": MARKUP})),
        answer("t3", &format!("\u{1b}[31m{MARKUP}\u{1b}[0m"), true),
        json!({"type": "assistant", "message": {"id": "thought", "role": "assistant", "content": [{"type": "thinking", "thinking": MARKUP}]}, "session_id": "s"}),
        json!({"type": MARKUP, "anything": MARKUP}),
    ];
    let prints = format!("{}\necho '{}' >&2", print(&lines), MARKUP.replace('\'', "\""));
    range.claude("markup in text, tools, files and answers", &prints).await?;
    range.open_rows().await?;
    range.shows("<img src=x onerror=\"canary('img')\">").await?;
    range.to_the_start().await?;
    range.shows("Before <script>canary(\"script\")</script>").await?;
    range.click_everything().await?;
    range.is_unharmed("markup").await?;
    let script =
        format!("cat <<'THE END'\n{MARKUP}\nTHE END\nprintf '\\033[32m%s\\033[0m\\n' '<b onclick=canary(6)>green</b>'");
    range.shell(&script).await?;
    range.shows("<b onclick=canary(6)>green</b>").await?;
    range.terminal_shows("raw-markup", "<b onclick=canary(6)>green</b>").await?;
    range.is_unharmed("raw-markup").await
}

/// The same, letter by letter.
async fn markup_in_pieces(range: &mut Range<'_>) -> anyhow::Result<()> {
    let event = |event: Value| json!({"type": "stream_event", "event": event, "session_id": "s"});
    let mut lines = vec![
        event(
            json!({"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        ),
        event(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})),
    ];
    let whole = format!("It begins {MARKUP} [a link](javascript:canary(7)) and **ends** here.");
    for letter in whole.chars() {
        lines.push(event(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": letter.to_string()}})));
    }
    lines.push(event(json!({"type": "content_block_stop", "index": 0})));
    // A pause in the middle of a tag, so that it is drawn half.
    let (first, second) = lines.split_at(40);
    range.claude("markup in pieces", &format!("{}\nsleep 0.5\n{}", print(first), print(second))).await?;
    range.shows("and ends here.").await?;
    range.is_unharmed("pieces").await
}

async fn links(range: &mut Range<'_>) -> anyhow::Result<()> {
    let targets = [
        "javascript:canary(1)",
        "JaVaScRiPt:canary(2)",
        "java\tscript:canary(3)",
        "&#106;avascript:canary(4)",
        "javascript&colon;canary(5)",
        "%6aavascript:canary(6)",
        "\u{1}javascript:canary(7)",
        "file:///etc/passwd",
        "data:text/html;base64,PHNjcmlwdD5jYW5hcnkoOCk8L3NjcmlwdD4=",
        "tauri://localhost/index.html",
        "ipc://localhost/sandbox_stop",
        "http+unix://x",
        "vbscript:canary(9)",
        "blob:tauri://localhost/1",
        "view-source:https://example.org",
        "//example.org/relative",
        "/etc/passwd",
        "#top",
        "?query",
    ];
    let mut words = "Links that lead nowhere:\n\n".to_owned();
    for (number, target) in targets.iter().enumerate() {
        words += &format!("- [link {number}](<{target}>) <{target}> [by reference {number}][r{number}]\n");
    }
    for (number, target) in targets.iter().enumerate() {
        words += &format!("\n[r{number}]: <{target}>");
    }
    range.claude("links", &print(&[text(&words)])).await?;
    range.shows("by reference 18").await?;
    let found = range.app.all("[data-testid=\"row-text\"] a").await?;
    ensure!(found.is_empty(), "none of these is a link: {found:#?}");
    range.click_everything().await?;
    ensure!(range.app.look("link-confirm").await?.is_none(), "and none opens a question");
    // A command that the window may call refuses them too, whoever calls it.
    range.is_unharmed("links").await?;
    // Even a script in the page could lead it nowhere else.
    let leave = format!("location.href = {}", json!(range.address));
    range.app.script(&leave, vec![]).await?;
    range.app.script("location.href = 'data:text/html,gone'", vec![]).await?;
    range.has_not_acted("leaving").await
}

async fn lying_links(range: &mut Range<'_>) -> anyhow::Result<()> {
    let address = range.address.clone();
    let host = address.trim_start_matches("http://").to_owned();
    let long = format!("{address}/{}", "a".repeat(5_000));
    let words = format!(
        "[https://github.com/login]({address}/stolen)\n\n[your bank](http://bank.example@{host}/x)\n\n[раypal](https://xn--ypal-43d9g.com/)\n\n[рaypal.com](https://рaypal.com/)\n\n[\u{202e}moc.elpmaxe//:sptth]({address}/reversed)\n\n[long]({long})\n\n[mail](mailto:a@example.org?bcc=all@example.org&body=x)"
    );
    range.claude("links that lie", &print(&[text(&words)])).await?;
    let expected = [
        format!("{address}/stolen"),
        format!("http://bank.example@{host}/x"),
        "https://xn--ypal-43d9g.com/".to_owned(),
        "https://xn--aypal-uye.com/".to_owned(),
        format!("{address}/reversed"),
        long,
        "mailto:a@example.org?bcc=all@example.org&body=x".to_owned(),
    ];
    for (number, target) in expected.iter().enumerate() {
        let click = "document.querySelectorAll('[data-testid=\"row-text\"] a')[arguments[0]].click()";
        range.app.script(click, vec![number.into()]).await?;
        let shown = range.app.see("link-target").await?;
        ensure!(shown.text == *target, "the question shows where the link leads: {:?}", shown.text);
        range.app.see("link-open").await?;
        if [1, 5].contains(&number) {
            range.app.screenshot(&format!("{:02}-lying-link-{number}", range.number + 1)).await?;
        }
        range.app.close_dialog().await?;
    }
    range.is_unharmed("lying-links").await
}

async fn remote_content(range: &mut Range<'_>) -> anyhow::Result<()> {
    let address = &range.address;
    let words = format!(
        "![a chart]({address}/a.png) ![]({address}/b.png \"title\") ![by reference][image] [![linked]({address}/c.png)](https://example.org) ![data](data:image/svg+xml;base64,PHN2Zz4=)\n\n[image]: {address}/d.png\n\n<img src=\"{address}/e.png\"> <link rel=stylesheet href=\"{address}/f.css\"> <link rel=preconnect href=\"{address}\"> <style>@import url({address}/g.css); body {{ background: url({address}/h.png) }}</style> <video src=\"{address}/i\" autoplay></video> <object data=\"{address}/j\"></object> <meta http-equiv=refresh content=\"0; url={address}/k\"> <base href=\"{address}/\"> <script src=\"{address}/l.js\"></script> <iframe src=\"{address}/m\"></iframe>\n\nThe end."
    );
    range.claude("pictures from elsewhere", &print(&[text(&words)])).await?;
    range.shows("The end.").await?;
    range.is_unharmed("remote").await?;
    // Whatever found its way into the page would still be refused by the page's own rules; these two are seen.
    let ask = format!(
        "new Image().src = '{0}/x.png'; return fetch('{0}/y').then(() => 'answered', () => 'refused')",
        range.address
    );
    let said = range.app.script(&ask, vec![]).await?;
    ensure!(said == "refused", "the page's rules let something out: {said}");
    range
        .app
        .wait("both refusals are seen", DEADLINE, async || {
            let seen = range.app.script("return window.canaries.length", vec![]).await?;
            Ok((seen.as_u64() >= Some(2)).then_some(()))
        })
        .await?;
    range.app.script("window.canaries = []", vec![]).await?;
    range.has_not_acted("asking").await
}

async fn styles_and_names(range: &mut Range<'_>) -> anyhow::Result<()> {
    let words = r#"<style>* { display: none !important } body::after { content: "You are signed out"; position: fixed; inset: 0 }</style>

<div style="position:fixed;inset:0;background:red;z-index:99999" class="clobbered page" id="clobbered">Your session is over. <a href="https://example.org">Sign in</a></div>

<form id="clobbered" action="https://example.org"><input name="clobbered" autofocus><button data-testid="stop">Stop</button></form>

<a id="courier" name="clobbered"></a><img name="body"><form name="clobbered"><input name="attributes"><input name="children"></form>

<span data-testid="status-badge" data-status="killed" class="clobbered" id="app" role="alert" aria-live="assertive" contenteditable tabindex="1">killed</span> <p dir="rtl" lang="ar" hidden>right to left</p> <dialog open>A question</dialog>

| <td colspan=1000 style="position:fixed">cell | other |
|:-:|--:|
| a | b |

All of this is text."#;
    range.claude("styles and names", &print(&[text(words)])).await?;
    range.shows("All of this is text.").await?;
    let badges = range.app.all("[data-testid=\"row-text\"] [data-testid], [data-testid=\"row-text\"] [id], [data-testid=\"row-text\"] [class]:not(.prose, .block), [data-testid=\"row-text\"] [style]").await?;
    ensure!(badges.is_empty(), "no name, class or style comes from the agent: {badges:#?}");
    range.is_unharmed("styles").await
}

/// Characters that reorder or hide: seen as marks wherever a name or a command stands.
async fn directions(range: &mut Range<'_>) -> anyhow::Result<()> {
    let lines = [
        text(
            "Run `rm \u{202e}gpj.exe\u{202c}` and [pay\u{200b}pal](https://example.org), then \u{2066}isolated\u{2069} me\u{ad}ssage \u{e0069}\u{e0067}\u{e006e}ore. Emoji stay: 👩‍👩‍👧‍👦 ❤️‍🔥 🏳️‍🌈. So does writing that joins: می\u{200c}خواهم.\n\nA name that is right to left stands by itself: `שלום.txt` 1 2 3, and [قائمة](https://example.org) 4 5 6.\n\nControl: \u{1b}[31mred\u{7}\u{0}\u{8}.",
        ),
        tool(
            "t1",
            "Edit",
            &json!({"file_path": "src/invoice\u{202e}fdp.exe", "old_string": "a", "new_string": "if (is\u{200b}Admin \u{2066}/* begin */\u{2069})"}),
        ),
        answer("t1", "done", false),
        tool("t2", "Bash", &json!({"command": "echo safe \u{202e}# fr- mr\u{202c} \u{2028}rm -rf ~\r# nothing"})),
        answer("t2", "out\u{202e}put \u{200b}hidden", false),
        tool("t3", "Re\u{200b}ad", &json!({"file_path": "a\u{3164}b\u{feff}.txt"})),
        answer("t3", "x", false),
    ];
    range.claude("directions \u{202e}desrever and \u{200b}hidden", &print(&lines)).await?;
    range.open_rows().await?;
    for words in [
        "rm ⟦RLO⟧gpj.exe⟦PDF⟧",
        "pay⟦ZWSP⟧pal",
        "⟦LRI⟧isolated⟦PDI⟧",
        "me⟦SHY⟧ssage ⟦U+E0069⟧",
        "👩‍👩‍👧‍👦 ❤️‍🔥 🏳️‍🌈",
        "می\u{200c}خواهم",
        "⟦ESC⟧[31mred⟦BEL⟧",
        "src/invoice⟦RLO⟧fdp.exe",
        "is⟦ZWSP⟧Admin",
        "safe ⟦RLO⟧# fr- mr⟦PDF⟧ ⟦LS⟧rm -rf ~ # nothing",
        "out⟦RLO⟧put ⟦ZWSP⟧hidden",
    ] {
        range.shows(words).await?;
    }
    let title = range.app.see("[data-testid=\"sandbox-row\"][aria-selected=\"true\"]").await?.text;
    ensure!(title.contains("⟦RLO⟧desrever and ⟦ZWSP⟧hidden"), "the title is marked in the list: {title}");
    range.to_the_start().await?;
    range.is_unharmed("directions").await
}

async fn nesting(range: &mut Range<'_>) -> anyhow::Result<()> {
    let deep = 10_000;
    let steps: String = (0..140).map(|step| format!("{}- in\n", "  ".repeat(step))).collect();
    let lines = [
        text(&format!("{}a quote", "> ".repeat(deep))),
        text(&format!("{}a list", "- ".repeat(deep))),
        text(&format!("{}a number", "1. ".repeat(6_000))),
        text(&format!("{}markup{}", "<div><b>".repeat(deep), "</b></div>".repeat(deep))),
        text(&steps),
    ];
    let json = format!("{}1{}", r#"{"a":["#.repeat(deep), "]}".repeat(deep));
    let call = format!(
        r#"{{"type":"assistant","message":{{"id":"deep","role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"Bash","input":{json}}}]}},"session_id":"s"}}"#
    );
    let prints = format!(
        "{}\ncat <<'THE END'\n{json}\n{call}\nTHE END\n{}",
        print(&lines),
        print(&[text("After all that depth.")])
    );
    range.claude("nesting", &prints).await?;
    range.shows("After all that depth.").await?;
    range.open_rows().await?;
    range.is_unharmed("nesting").await
}

/// What makes a careless reader of Markdown look for ends among all beginnings.
async fn tangles(range: &mut Range<'_>) -> anyhow::Result<()> {
    let lines = [
        text(&"_a".repeat(10_000)),
        text(&"a**b".repeat(5_000)),
        text(&"![".repeat(10_000)),
        text(&"[a](".repeat(5_000)),
        text(&"<a ".repeat(7_000)),
        text(&"*_".repeat(10_000)),
        text(&(0..190).map(|count| "`".repeat(count) + "a").collect::<String>()),
        text("After all those **signs**."),
    ];
    range.claude("tangles", &print(&lines)).await?;
    range.shows("After all those signs.").await?;
    range.is_unharmed("tangles").await
}

async fn clutter(range: &mut Range<'_>) -> anyhow::Result<()> {
    let row = |cell: &str| format!("|{}\n", format!("{cell}|").repeat(200));
    let table = row("head") + &row("-") + &row("cell").repeat(40);
    let stack = format!("stacked: {} and on", format!("a{}", "\u{30d}\u{311}".repeat(200)).repeat(3));
    let lines = [
        text(&table),
        text(&"👩‍👩‍👧‍👦".repeat(800)),
        text(&format!("👩{}", "\u{200d}👩".repeat(2_000))),
        text(&stack),
        text(&"W".repeat(20_000)),
        tool("t1", &"N".repeat(5_000), &json!({"file_path": "p/".repeat(5_000)})),
        answer("t1", &"\n".repeat(50_000), false),
        text("After the clutter."),
    ];
    range.claude("clutter", &print(&lines)).await?;
    range.shows("After the clutter.").await?;
    range.open_rows().await?;
    range.is_unharmed("clutter").await?;
    let script = format!(
        "printf '%s\\n' 'stacked: {stack}' 'the line below'; for i in {{1..2000}}; do printf '\\033[3%dm\\033[1m\\033[4m%s' $((i % 8)) '👩‍👩‍👧‍👦x'; done; echo; echo after"
    );
    range.shell(&script).await?;
    range.shows("after").await?;
    range.terminal_shows("raw-clutter", "after").await?;
    range.is_unharmed("raw-clutter").await
}

async fn a_long_line(range: &mut Range<'_>) -> anyhow::Result<()> {
    range.shell("echo before; head -c 10000000 /dev/zero | tr '\\0' 'x'; echo; echo after").await?;
    range.shows("after").await?;
    range.terminal_shows("long-line", "after").await?;
    range.is_unharmed("long-line").await?;
    let prints = r#"long() { head -c 10000000 /dev/zero | tr '\0' 'y'; }
printf '{"type":"assistant","message":{"id":"long","role":"assistant","content":[{"type":"text","text":"It begins '; long; printf '"}]},"session_id":"s"}\n'
printf '{"type":"assistant","message":{"id":"call","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"'; long; printf '"}}]},"session_id":"s"}\n'
printf '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"'; long; printf '"}]},"session_id":"s"}\n'
long; echo
echo '{"type":"assistant","message":{"id":"after","role":"assistant","content":[{"type":"text","text":"After the long lines."}]},"session_id":"s"}'"#;
    range.claude("a long line", prints).await?;
    range.shows("After the long lines.").await?;
    range.open_rows().await?;
    range.is_unharmed("long-text").await
}

/// What a terminal would obey.
async fn sequences(range: &mut Range<'_>) -> anyhow::Result<()> {
    let app = range.app;
    let script = r#"echo 'before the sequences'
printf '\033]52;c;%s\007' "$(printf stolen | base64)"; printf '\033]52;p;%s\033\\' "$(printf stolen | base64)"
printf '\033]0;a stolen title\007\033]2;a stolen title\033\\\033]1;icon\007'
printf '\033]8;;http://127.0.0.1:1/\033\\a terminal link\033]8;;\033\\\n'
printf '\033]4;1;?\007\033]10;?\007\033]11;#ff0000\007\033]12;?\007\033]1337;File=inline=1:AAAA\007\033]777;notify;a;b\007\033]9;note\007'
printf '\033[6n\033[5n\033[c\033[>c\033[=c\033[?6n\033[18t\033[21t\033[20t\033[x\033P$qm\033\\\033P+q544e\033\\\033Z\005'
printf '\033[?1000h\033[?1003h\033[?1006h\033[?1004h\033[?2004h\033[?25l'
if read -rt 0.5 answer; then echo "answered: $answer"; else echo 'not answered'; fi
echo 'earlier output'
printf '\033[2J\033[3J\033[H\033[1;1H\033c\033[!p'
printf '\033[?1049h\033[2J on another screen\033[?1049l\n'
printf '\033_application\033\\\033^private\033\\\033Xstring\033\\\033P0;1|17/ab\033\\\233 31m\n'
printf '\033[8m hidden\033[0m \033[30;40mblack on black\033[0m\n'
echo 'after the sequences'
printf '\033]0;never ended'"#;
    range.shell(script).await?;
    for words in ["before the sequences", "not answered", "earlier output", "a terminal link", "after the sequences"] {
        range.shows(words).await?;
    }
    range.terminal_shows("sequences", "after the sequences").await?;
    let links = app.all("[data-testid=\"terminal\"] a, [data-testid=\"terminal\"] .xterm-underline-5").await?;
    ensure!(links.is_empty(), "the terminal has no links");
    range.is_unharmed("sequences").await?;
    // Had anything written the clipboard, it would have been seen.
    app.script("void navigator.clipboard.writeText('written').catch(() => {})", vec![]).await?;
    let seen = app.script("return window.canaries.splice(0)", vec![]).await?;
    ensure!(seen == json!(["clipboard writeText"]), "writing the clipboard is watched: {seen}");
    Ok(())
}

/// Numbers that would keep a terminal counting.
async fn counts(range: &mut Range<'_>) -> anyhow::Result<()> {
    let script = r#"echo before; n=2147483647
for final in @ A B C D E F G H I L M P S T X Z b d e f r s; do printf "x\033[${n}${final}"; done
printf "x\033[${n};${n}H\033[${n};${n}r\033[r\033[${n} @\033[${n} A\033[${n}'}\033[${n}'~\033[38;2;${n};${n};${n}mcolour\033[0m\n"
printf "\033[$(printf '1;%.0s' {1..5000})m many parameters\033[0m\n"
echo 'after the counts'"#;
    range.shell(script).await?;
    range.shows("after the counts").await?;
    range.terminal_shows("counts", "after the counts").await?;
    range.is_unharmed("counts").await
}

/// A repository is hostile too: its folder, its branches; and a title is what somebody pasted.
async fn names(range: &mut Range<'_>) -> anyhow::Result<()> {
    let app = range.app;
    let origin = Repository::ordinary()?;
    let name = "<img src=x onerror=canary(1)>\u{202e}gpj\u{200b}";
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    let branch = "feature/<script>canary(2)</script>\u{202e}niam";
    origin.git(&["branch", branch])?;
    origin.git(&["switch", "--quiet", branch])?;
    origin.git(&["clone", "--quiet", ".", &path.to_string_lossy()])?;
    app.click("add-project").await?;
    app.fill("project-source", &path.to_string_lossy()).await?;
    app.click("project-add-confirm").await?;
    app.is_gone("add-project-dialog").await?;
    app.see_text("project-row", "<img src=x onerror=canary(1)>⟦RLO⟧gpj⟦ZWSP⟧").await?;
    app.fill_new_sandbox(NewSandbox {
        prompt: "echo '<b onclick=canary(3)>'; git branch",
        minutes: Some("5"),
        ..NewSandbox::default()
    })
    .await?;
    app.fill("title-input", "<svg onload=canary(4)> \u{202e}eltit").await?;
    app.screenshot("names-dialog").await?;
    app.click("start-sandbox").await?;
    app.is_gone("new-sandbox-dialog").await?;
    app.see("row-ended").await?;
    let row = app.see("[data-testid=\"sandbox-row\"][aria-selected=\"true\"]").await?.text;
    ensure!(row.contains("<svg onload=canary(4)> ⟦RLO⟧eltit"), "the title is text: {row}");
    let details = app.see("details").await?.text;
    ensure!(details.contains("<script>canary(2)</script>⟦RLO⟧niam"), "the branch is text: {details}");
    range.is_unharmed("names").await
}
