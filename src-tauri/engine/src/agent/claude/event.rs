//! The lines Claude Code prints with `--output-format stream-json`, as types that borrow from the line.
//!
//! Seen in Claude Code 2.1.332 (recordings in `tests/fixtures/agents/claude`). One type for all lines, every field
//! optional: the kind of a line stands anywhere in it, and a field that goes missing in a later version is no error.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use crate::transcript::json::{Loose, Str};

/// One line.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Str<'a>,
    #[serde(borrow)]
    pub subtype: Option<Str<'a>>,
    #[serde(borrow)]
    pub session_id: Option<Str<'a>>,
    /// When the agent printed it, RFC 3339.
    #[serde(borrow)]
    pub timestamp: Option<Str<'a>>,
    /// The call that started the sub-agent this line comes from.
    #[serde(borrow)]
    pub parent_tool_use_id: Option<Str<'a>>,
    /// What that sub-agent was asked to do.
    #[serde(borrow)]
    pub task_description: Option<Str<'a>>,

    // assistant, user; system/permission_denied (a string).
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    #[serde(borrow, default)]
    pub tool_use_result: ToolData<'a>,
    /// Who decided about the calls whose results this line holds.
    #[serde(borrow, default)]
    pub tool_result_meta: Loose<'a>,
    // stream_event.
    pub event: Option<StreamEvent<'a>>,
    #[serde(borrow)]
    pub abandoned_blocks: Option<Abandoned<'a>>,

    // Failures: assistant, result, system/api_retry.
    #[serde(borrow, default)]
    pub error: Loose<'a>,
    pub api_error_status: Option<u16>,
    #[serde(borrow, default)]
    pub api_error_type: Loose<'a>,
    #[serde(borrow, default)]
    pub api_error: Loose<'a>,
    pub error_status: Option<u16>,
    pub attempt: Option<u32>,
    pub max_retries: Option<u32>,
    pub retry_delay_ms: Option<f64>,
    #[serde(borrow, default)]
    pub rate_limit_info: Loose<'a>,

    // result.
    #[serde(default)]
    pub is_error: bool,
    #[serde(borrow, default)]
    pub result: Loose<'a>,
    #[serde(borrow, default)]
    pub errors: Loose<'a>,
    #[serde(borrow)]
    pub terminal_reason: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub usage: Loose<'a>,
    #[serde(borrow, default)]
    pub model_usage_since_last_result: Loose<'a>,
    #[serde(borrow, default)]
    pub permission_denials: Loose<'a>,

    // system.
    #[serde(borrow, default)]
    pub cwd: Loose<'a>,
    #[serde(borrow, rename = "apiKeySource", default)]
    pub api_key_source: Loose<'a>,
    #[serde(borrow)]
    pub tool_use_id: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub tool_name: Loose<'a>,
    #[serde(borrow, default)]
    pub task_id: Loose<'a>,
    #[serde(default)]
    pub is_backgrounded: Option<bool>,
    #[serde(borrow, default)]
    pub summary: Loose<'a>,
    #[serde(borrow, default)]
    pub status: Loose<'a>,
}

/// A message of the conversation; in one kind of line it is a sentence.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    pub id: Option<Str<'a>>,
    pub model: Option<Str<'a>>,
    pub content: Content<'a>,
    pub usage: Option<Tokens>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Message<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow)]
            id: Option<Str<'a>>,
            #[serde(borrow)]
            model: Option<Str<'a>>,
            #[serde(borrow, default)]
            content: Content<'a>,
            usage: Option<Tokens>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Message<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Message<'de>, E> {
                Ok(Message { content: Content::Text(Str(text.to_owned().into())), ..Message::default() })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Message<'de>, A::Error> {
                let fields = Fields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Message { id: fields.id, model: fields.model, content: fields.content, usage: fields.usage })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What a message or a tool's result consists of.
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    Nothing,
    Text(Str<'a>),
    Blocks(Vec<Block<'a>>),
}

impl Content<'_> {
    /// All of it as text; what is not text is named in brackets.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Content::Nothing => Cow::Borrowed(""),
            Content::Text(text) => Cow::Borrowed(text),
            Content::Blocks(blocks) => {
                let parts = blocks.iter().map(|block| match &block.text {
                    Some(text) => Cow::Borrowed(&**text),
                    None => Cow::Owned(format!("[{}]", &*block.kind)),
                });
                let mut parts: Vec<_> = parts.collect();
                if parts.len() == 1 { parts.remove(0) } else { Cow::Owned(parts.join("\n")) }
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Content<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or blocks")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Content<'de>, E> {
                Ok(Content::Nothing)
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Str(text.into())))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Str(text.to_owned().into())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Content<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some(block) = blocks.next_element()? {
                    all.push(block);
                }
                Ok(Content::Blocks(all))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A tool's result as data. An object whose fields depend on the tool; where the tool failed a string, which tells no
/// more than the message does. Long values are skipped, not read, and only once.
#[derive(Debug, Default)]
pub(super) struct ToolData<'a>(Option<ToolFields<'a>>);

impl<'a> std::ops::Deref for ToolData<'a> {
    type Target = Option<ToolFields<'a>>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The fields of all the tools we know.
#[derive(Debug, Deserialize)]
pub(super) struct ToolFields<'a> {
    // Bash.
    #[serde(borrow, default)]
    pub stdout: Loose<'a>,
    #[serde(borrow, default)]
    pub interrupted: Loose<'a>,
    #[serde(borrow, rename = "backgroundTaskId", default)]
    pub background: Loose<'a>,
    /// Why a code other than 0 is no failure ("no matches found").
    #[serde(borrow, rename = "returnCodeInterpretation", default)]
    pub interpretation: Loose<'a>,
    // Edit, Write.
    #[serde(borrow, rename = "type", default)]
    pub kind: Loose<'a>,
    #[serde(borrow, rename = "filePath", default)]
    pub file_path: Loose<'a>,
    #[serde(borrow, default)]
    pub content: Loose<'a>,
    #[serde(borrow, rename = "structuredPatch", default)]
    pub structured_patch: Loose<'a>,
    // TaskCreate.
    #[serde(borrow, default)]
    pub task: Loose<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ToolData<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ToolData<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool's result")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ToolData<'de>, A::Error> {
                ToolFields::deserialize(MapAccessDeserializer::new(map)).map(|fields| ToolData(Some(fields)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<ToolData<'de>, A::Error> {
                while values.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(ToolData(None))
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<ToolData<'de>, E> {
                Ok(ToolData(None))
            }
            fn visit_unit<E: de::Error>(self) -> Result<ToolData<'de>, E> {
                Ok(ToolData(None))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<ToolData<'de>, E> {
                Ok(ToolData(None))
            }
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<ToolData<'de>, E> {
                Ok(ToolData(None))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<ToolData<'de>, E> {
                Ok(ToolData(None))
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<ToolData<'de>, E> {
                Ok(ToolData(None))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// One block of a message.
#[derive(Debug, Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type", default)]
    pub kind: Str<'a>,
    #[serde(borrow)]
    pub text: Option<Str<'a>>,
    #[serde(borrow)]
    pub thinking: Option<Str<'a>>,
    // tool_use.
    #[serde(borrow)]
    pub id: Option<Str<'a>>,
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub input: Loose<'a>,
    // tool_result.
    #[serde(borrow)]
    pub tool_use_id: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub content: Content<'a>,
    #[serde(default)]
    pub is_error: Option<bool>,
}

/// An event of the Messages API's stream, passed on by `--include-partial-messages`.
#[derive(Debug, Deserialize)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    pub kind: Str<'a>,
    pub index: Option<u32>,
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    #[serde(borrow)]
    pub content_block: Option<Block<'a>>,
    #[serde(borrow)]
    pub delta: Option<BlockDelta<'a>>,
    pub usage: Option<Tokens>,
}

/// More of a block.
#[derive(Debug, Deserialize)]
pub(super) struct BlockDelta<'a> {
    #[serde(borrow)]
    pub text: Option<Str<'a>>,
    #[serde(borrow)]
    pub thinking: Option<Str<'a>>,
}

/// Blocks of a message whose stream broke: the agent asks for them again, or gives up.
#[derive(Debug, Deserialize)]
pub(super) struct Abandoned<'a> {
    #[serde(borrow, default)]
    pub api_message_id: Str<'a>,
    #[serde(default)]
    pub from_block_index: u32,
}

/// Tokens as the Messages API counts them: `input_tokens` is without the cached ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Tokens {
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cache_creation_input_tokens: Option<u64>,
    pub cache_read_input_tokens: Option<u64>,
}

/// Tokens as Claude Code counts them per model, sub-agents and broken requests included.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ModelTokens {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
}

/// A call that was not permitted.
#[derive(Debug, Deserialize)]
pub(super) struct Denial<'a> {
    #[serde(borrow, default)]
    pub tool_name: Str<'a>,
    #[serde(borrow, default)]
    pub tool_use_id: Str<'a>,
}

/// Who decided about one call.
#[derive(Debug, Deserialize)]
pub(super) struct ResultMeta<'a> {
    #[serde(borrow, default)]
    pub id: Str<'a>,
    #[serde(borrow)]
    pub permission_decision: Option<Decision<'a>>,
}

/// A decision about a permission, and whose it was.
#[derive(Debug, Deserialize)]
pub(super) struct Decision<'a> {
    #[serde(borrow, default)]
    pub source: Str<'a>,
}

/// What is known about a limit of a subscription.
#[derive(Debug, Deserialize)]
pub(super) struct RateLimit<'a> {
    #[serde(borrow, default)]
    pub status: Str<'a>,
    /// Seconds since 1970.
    #[serde(rename = "resetsAt")]
    pub resets_at: Option<f64>,
}
