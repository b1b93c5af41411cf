//! What a server was asked, and what it said.

use std::{collections::HashMap, sync::Mutex, time::Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    api::Api,
    scenario::{Earlier, UsageServed},
};
use crate::serving::held;

/// One request, as it came.
#[derive(Clone, Debug, Serialize)]
pub struct RequestSeen {
    /// 1 is the first.
    pub number: usize,
    pub method: String,
    pub path: String,
    /// None for what is no question to a model: a list of models, a count of tokens.
    pub api: Option<Api>,
    pub scenario: String,
    pub key: Option<KeySeen>,
    pub model: Option<String>,
    /// How hard the model was asked to think, in the API's own word.
    pub effort: Option<String>,
    /// How many tool calls the agent had made since the newest message.
    pub step: usize,
    /// The names of the tools it offered.
    pub tools: Vec<String>,
    /// What the person wrote, oldest first.
    pub said: Vec<String>,
    /// The conversation as the agent sent it.
    pub messages: Value,
    /// The tokens the answer claims; none for an error, and for a stream that was not asked to tell.
    pub usage: Option<UsageServed>,
    pub status: u16,
    /// The answer went out to its end, which is where it tells its usage: nothing broke, and nobody hung up before.
    pub is_answered: bool,
}

impl RequestSeen {
    /// The agent's own requests for the model to work; side requests (titles, counts) bring no tools.
    pub fn is_work(&self) -> bool {
        !self.tools.is_empty()
    }
}

/// The key a request came with, and where it stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeySeen {
    pub header: String,
    pub value: String,
}

#[derive(Debug)]
pub(super) struct Memory {
    /// Prints a line per request.
    echo: bool,
    requests: Mutex<Vec<RequestSeen>>,
    /// Work asked for under each base URL: how often, and when first.
    earlier: Mutex<HashMap<String, (usize, Instant)>>,
}

impl Memory {
    pub(super) fn new(echo: bool) -> Self {
        Memory { echo, requests: Mutex::default(), earlier: Mutex::default() }
    }

    pub(super) fn requests(&self) -> Vec<RequestSeen> {
        held(&self.requests).clone()
    }

    /// Remembers a request and gives it its number. `complete` adds what follows from that.
    pub(super) fn remember(&self, mut request: RequestSeen, complete: impl FnOnce(&mut RequestSeen)) -> RequestSeen {
        let mut requests = held(&self.requests);
        request.number = requests.len() + 1;
        complete(&mut request);
        if self.echo {
            let mut line = json!(request);
            line["messages"] = request.messages.as_array().map_or(0, Vec::len).into();
            eprintln!("{line}");
        }
        requests.push(request.clone());
        request
    }

    /// The last piece of this request's answer is on its way.
    pub(super) fn answered(&self, number: usize) {
        held(&self.requests)[number - 1].is_answered = true;
        if self.echo {
            eprintln!("{}", json!({"number": number, "is_answered": true}));
        }
    }

    /// What was asked at this place before. This request is counted for the next.
    pub(super) fn earlier(&self, place: &str) -> Earlier {
        let mut earlier = held(&self.earlier);
        let (times, first) = earlier.entry(place.to_owned()).or_insert_with(|| (0, Instant::now()));
        *times += 1;
        Earlier { times: *times - 1, since: first.elapsed() }
    }
}
