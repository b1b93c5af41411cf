//! The agent's own list of things to do.

use serde::Deserialize;

use super::event::ToolFields;
use crate::{
    model::{Delta, Item, ProgressEntry, ProgressState},
    transcript::{Items, json::Str, one_line},
};

/// The list as it stands. Older versions replace it whole (`TodoWrite`), newer ones change one entry at a time
/// (`TaskCreate`, `TaskUpdate`); some are started without either.
#[derive(Debug, Default)]
pub(super) struct Plan {
    entries: Vec<(String, ProgressEntry)>,
    at: Option<u32>,
}

impl Plan {
    /// Whether calls of this tool are shown as the list they change.
    pub fn is_told_by(tool: &str) -> bool {
        matches!(tool, "TodoWrite" | "TaskCreate" | "TaskUpdate")
    }

    /// What a successful call changed; `false` where it can't be read.
    pub fn apply(
        &mut self,
        tool: &str,
        input: &str,
        data: Option<&ToolFields<'_>>,
        text: &str,
        items: &mut Items,
        deltas: &mut Vec<Delta>,
    ) -> bool {
        let changed = match tool {
            "TodoWrite" => self.replace(input),
            "TaskCreate" => self.create(input, data, text),
            _ => self.update(input),
        };
        if changed.is_some() {
            let entries = self.entries.iter().map(|(_, entry)| entry.clone()).collect();
            match self.at {
                Some(at) => deltas.push(Delta::Put { at, item: Item::Progress { entries } }),
                None => self.at = Some(items.add(Item::Progress { entries }, deltas)),
            }
        }
        changed.is_some()
    }

    fn replace(&mut self, input: &str) -> Option<()> {
        #[derive(Deserialize)]
        struct Todo<'a> {
            #[serde(borrow)]
            content: Str<'a>,
            #[serde(borrow, default)]
            status: Str<'a>,
        }
        #[derive(Deserialize)]
        struct Todos<'a> {
            #[serde(borrow)]
            todos: Vec<Todo<'a>>,
        }
        let todos = serde_json::from_str::<Todos<'_>>(input).ok()?.todos;
        let entry = |todo: &Todo<'_>| ProgressEntry { text: one_line(&todo.content), state: state(&todo.status) };
        self.entries = todos.iter().enumerate().map(|(index, todo)| (index.to_string(), entry(todo))).collect();
        Some(())
    }

    fn create(&mut self, input: &str, data: Option<&ToolFields<'_>>, text: &str) -> Option<()> {
        #[derive(Deserialize)]
        struct Input<'a> {
            #[serde(borrow)]
            subject: Str<'a>,
        }
        #[derive(Deserialize)]
        struct Task<'a> {
            #[serde(borrow)]
            id: Str<'a>,
        }
        let subject = serde_json::from_str::<Input<'_>>(input).ok()?.subject;
        let told = || text.split_once('#').map(|(_, id)| id.chars().take_while(char::is_ascii_digit).collect());
        let id = data.and_then(|data| data.task.read::<Task<'_>>()).map(|task| task.id.to_string()).or_else(told)?;
        self.entries.push((id, ProgressEntry { text: one_line(&subject), state: ProgressState::Pending }));
        Some(())
    }

    fn update(&mut self, input: &str) -> Option<()> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Input<'a> {
            #[serde(borrow)]
            task_id: Str<'a>,
            #[serde(borrow)]
            status: Option<Str<'a>>,
            #[serde(borrow)]
            subject: Option<Str<'a>>,
        }
        let input: Input<'_> = serde_json::from_str(input).ok()?;
        let index = self.entries.iter().position(|(id, _)| *id == *input.task_id)?;
        match input.status.as_deref() {
            Some("deleted") => _ = self.entries.remove(index),
            status => {
                let entry = &mut self.entries[index].1;
                if let Some(status) = status {
                    entry.state = state(status);
                }
                if let Some(subject) = input.subject {
                    entry.text = one_line(&subject);
                }
            }
        }
        Some(())
    }
}

fn state(code: &str) -> ProgressState {
    match code {
        "completed" => ProgressState::Done,
        "in_progress" => ProgressState::Active,
        _ => ProgressState::Pending,
    }
}
