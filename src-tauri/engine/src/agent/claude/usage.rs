//! What a turn consumed, added up from what Claude Code says.
//!
//! `result.usage` is the turn's own and without cached tokens, but does not know what sub-agents and broken requests
//! consumed; `model_usage_since_last_result` does, but estimates the output of broken ones. (`modelUsage` and
//! `total_cost_usd` are no help: they are cumulative over the session, resumed turns included.) Until there is a
//! result, the messages' own reports stand in: several lines of one message repeat its usage, so they are kept one row
//! per message id and never summed by line.

use std::collections::HashMap;

use super::event::{ModelTokens, Tokens};
use crate::{
    model::Usage,
    transcript::json::{Loose, Str},
};

/// The account of one turn.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Messages no result has accounted for yet.
    messages: HashMap<String, Usage>,
    /// The sum of the results' own `usage`. A turn has several when background work wakes the agent again.
    reported: Option<Usage>,
    /// The sum of `model_usage_since_last_result`.
    by_model: Usage,
}

impl Tally {
    /// A message's report; a later one about the same message knows more.
    pub fn message(&mut self, id: &str, tokens: Tokens) {
        let known = match self.messages.get_mut(id) {
            Some(known) => known,
            None => self.messages.entry(id.to_owned()).or_default(),
        };
        // Reports of one message only grow; the start's is repeated by each of its blocks, after a later one too.
        known.input = known.input.max(tokens.input_tokens.unwrap_or(0));
        known.output = known.output.max(tokens.output_tokens.unwrap_or(0));
        known.cache_write = known.cache_write.max(tokens.cache_creation_input_tokens.unwrap_or(0));
        known.cache_read = known.cache_read.max(tokens.cache_read_input_tokens.unwrap_or(0));
    }

    /// A result accounts for everything before it.
    pub fn result(&mut self, usage: Option<Tokens>, by_model: Loose<'_>) {
        let told = usage.map(|tokens| Usage {
            input: tokens.input_tokens.unwrap_or(0),
            output: tokens.output_tokens.unwrap_or(0),
            cache_write: tokens.cache_creation_input_tokens.unwrap_or(0),
            cache_read: tokens.cache_read_input_tokens.unwrap_or(0),
        });
        let mut by_models = Usage::default();
        for model in by_model.read::<HashMap<Str<'_>, ModelTokens>>().unwrap_or_default().values() {
            add(
                &mut by_models,
                Usage {
                    input: model.input_tokens,
                    output: model.output_tokens,
                    cache_write: model.cache_creation_input_tokens,
                    cache_read: model.cache_read_input_tokens,
                },
            );
        }
        add(&mut self.by_model, by_models);
        // An interrupted answer is reported as nothing, though its request was read and billed.
        let told = match told {
            Some(told) if told != Usage::default() => told,
            _ if by_models != Usage::default() => by_models,
            told => self.open().or(told).unwrap_or_default(),
        };
        self.messages.clear();
        add(self.reported.get_or_insert_default(), told);
    }

    /// The last known consumption; `None` where nothing was reported.
    pub fn total(&self) -> Option<Usage> {
        let settled = self.reported.map(|reported| {
            let read = |usage: Usage| usage.input.saturating_add(usage.cache_write).saturating_add(usage.cache_read);
            // More was read than the results know of: sub-agents, or a request that broke.
            if read(self.by_model) > read(reported) { self.by_model } else { reported }
        });
        match (settled, self.open()) {
            (Some(mut settled), Some(open)) => {
                add(&mut settled, open);
                Some(settled)
            }
            (settled, open) => settled.or(open),
        }
    }

    fn open(&self) -> Option<Usage> {
        (!self.messages.is_empty()).then(|| {
            self.messages.values().fold(Usage::default(), |mut sum, usage| {
                add(&mut sum, *usage);
                sum
            })
        })
    }
}

fn add(sum: &mut Usage, more: Usage) {
    sum.input = sum.input.saturating_add(more.input);
    sum.output = sum.output.saturating_add(more.output);
    sum.cache_write = sum.cache_write.saturating_add(more.cache_write);
    sum.cache_read = sum.cache_read.saturating_add(more.cache_read);
}
