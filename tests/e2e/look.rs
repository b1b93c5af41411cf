//! What the window shows at one place, read in one go: elements come and go between two WebDriver calls.

use std::collections::BTreeMap;

use serde::Deserialize;

/// An element, as it was drawn.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) text: String,
    /// What a field holds.
    pub(crate) value: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) is_visible: bool,
    pub(crate) is_enabled: bool,
}

impl Seen {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// Answers all elements a selector finds.
pub(crate) const LOOK: &str = r#"
return [...document.querySelectorAll(arguments[0])].map((element) => {
  const box = element.getBoundingClientRect();
  return {
    text: element.innerText ?? "",
    value: String(element.value ?? ""),
    attributes: Object.fromEntries([...element.attributes].map(({ name, value }) => [name, value])),
    is_visible: box.width > 0 && box.height > 0 && getComputedStyle(element).visibility !== "hidden",
    is_enabled: !element.disabled && element.getAttribute("aria-disabled") !== "true",
  };
});"#;

/// Puts a text into a field as one edit: for texts in which a key would mean something else, or that are long.
pub(crate) const FILL: &str = r#"
const [selector, text] = arguments;
const field = document.querySelector(selector);
field.focus();
const kind = field instanceof HTMLTextAreaElement ? HTMLTextAreaElement : HTMLInputElement;
Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(field, text);
field.dispatchEvent(new InputEvent("input", { bubbles: true, data: text, inputType: "insertText" }));
return field.value;"#;

/// Chooses in a menu of the system's, which no driver can click.
pub(crate) const SELECT: &str = r#"
const [selector, value] = arguments;
const menu = document.querySelector(selector);
menu.focus();
menu.value = value;
menu.dispatchEvent(new Event("input", { bubbles: true }));
menu.dispatchEvent(new Event("change", { bubbles: true }));
return menu.value;"#;

/// A `data-testid`, or a selector where it has a bracket, a space or a dot.
pub(crate) fn selector(place: &str) -> String {
    let is_selector = place.contains(['[', ' ', '.', '>', ':', '#']);
    if is_selector { place.to_owned() } else { format!("[data-testid=\"{place}\"]") }
}
