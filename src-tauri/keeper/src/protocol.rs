//! What the app and a keeper say to each other.
//!
//! A keeper outlives the app that started it, and may meet a newer one: every frame carries [`VERSION`], and each side
//! refuses what it does not know. A frame is three little-endian `u32` (version, length of the head, length of the
//! body), the head as JSON, then the body: raw bytes, used only for what a turn reads on its standard input.

use std::{
    fmt,
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::identity::Identity;

/// The version of everything in this module.
pub const VERSION: u32 = 2;

/// Where the HTTP proxy listens on the sandbox's own loopback.
pub const HTTP_PROXY_PORT: u16 = 17980;

/// Where the SOCKS 5 proxy listens on the sandbox's own loopback.
pub const SOCKS_PROXY_PORT: u16 = 17981;

/// Where the model's endpoint listens on the sandbox's own loopback.
pub const GATEWAY_PORT: u16 = 17982;

/// How many unread bytes a stream's spool holds before the agent has to wait, until [`Request::AllowSpool`] says more.
pub const SPOOL_CAP: u64 = 256 << 20;

/// The variable that marks every process of a turn.
pub const TURN_VARIABLE: &str = "COURIER_TURN";

/// The longest head of a frame: environment and arguments, generously.
const HEAD_LIMIT: u32 = 8 << 20;

/// The longest body of a frame: a prompt, generously.
const BODY_LIMIT: u32 = 256 << 20;

/// What a keeper is told on its standard input, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartSpec {
    /// The version of the protocol the app speaks.
    pub version: u32,
    /// The sandbox's own folder: the keeper's files and `turns/` are in it. Never visible inside.
    pub directory: PathBuf,
    /// The clone the agent works in, visible inside at the same path, writable.
    pub workspace: PathBuf,
    /// The sandbox's HOME, visible inside at the same path, writable.
    pub home: PathBuf,
    /// Visible inside at the same paths, read-only.
    pub read_only: Vec<PathBuf>,
    /// What may be reached.
    pub network: Network,
    /// Hosts for [`Network::Listed`], and private `host:port`s for every mode but [`Network::None`].
    pub allowed_hosts: Vec<String>,
    /// Plain variables for every turn.
    pub variables: Vec<(String, String)>,
    /// The memory limit in MiB.
    pub memory_mb: u32,
    /// How many processors it may use.
    pub cpus: u32,
    /// Its running time.
    pub lifetime_ms: u64,
    /// What happens when that is over.
    pub on_timeout: OnTimeout,
    /// The bubblewrap program (not used on macOS).
    pub bwrap: PathBuf,
    /// Its version: older ones lack options.
    pub bwrap_version: (u32, u32),
}

/// What a sandbox may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Any public host.
    Open,
    /// The listed hosts only.
    Listed,
    /// Nothing.
    None,
}

/// What happens when a sandbox's running time is over and the app does not act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// Its turns are ended and it with them.
    Kill,
    /// It is paused.
    Pause,
}

/// What a keeper prints on its standard output, once, before it closes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Readiness {
    /// The sandbox is there and the socket answers.
    Ready {
        /// From the keeper's start to now.
        millis: u64,
    },
    /// Another keeper holds this sandbox.
    AlreadyKept,
    /// The sandbox could not be made.
    Failed {
        /// Why, as a fragment.
        cause: String,
    },
}

/// `keeper.json`: who keeps this sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeeperRecord {
    /// The protocol it speaks.
    pub version: u32,
    /// The keeper itself.
    pub keeper: Identity,
    /// Pid 1 of the sandbox as seen from outside, where there is one: once it is gone, so is every process inside.
    pub init: Option<Identity>,
}

/// `ended`: why a sandbox is no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRecord {
    /// Why.
    pub reason: EndReason,
    /// When, in Unix milliseconds.
    pub at: i64,
}

/// Why a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The app asked for it.
    Destroyed,
    /// Its running time was over and the app did not act.
    TimedOut,
    /// It went away by itself.
    Gone,
    /// The keeper was asked to leave by the system: a logout, a shutdown.
    Terminated,
}

/// What the app can ask of a keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// How are things?
    Status,
    /// Start a turn, once. The frame's body is its standard input.
    StartTurn(StartTurn),
    /// End a turn and everything it started.
    EndTurn {
        /// Which.
        turn: String,
        /// How long after TERM the KILL follows; 0: at once, without TERM.
        grace_ms: u64,
    },
    /// Suspend everything.
    Pause,
    /// Go on.
    Resume,
    /// Set how much running time is left from now on.
    Extend {
        /// That much.
        remaining_ms: u64,
    },
    /// Let each stream of a turn's spool grow to this length.
    AllowSpool {
        /// Which turn.
        turn: String,
        /// Up to where.
        bytes: u64,
    },
    /// End everything at once; the answer comes when nothing is left.
    Destroy,
}

/// A turn to start.
#[derive(Serialize, Deserialize)]
pub struct StartTurn {
    /// Its id, which names its folder: letters, digits and hyphens.
    pub turn: String,
    /// The program and its arguments. Public inside the sandbox: never a secret.
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's own.
    pub env: Vec<(String, String)>,
    /// What must never reach the spool.
    pub redact: Vec<String>,
    /// The model's endpoint from now on; `None`: there is none.
    pub gateway: Option<Gateway>,
}

/// A model's endpoint that is opened to the sandbox. The newest turn's holds.
#[derive(Clone, Serialize, Deserialize)]
pub struct Gateway {
    /// Where the model is: an [`crate::upstream::Upstream`].
    pub upstream: String,
    /// How the key is shown to it.
    pub header: KeyHeader,
    /// The real key. It goes there and nowhere else.
    pub key: String,
    /// What the agent has to show instead.
    pub token: String,
}

/// Where an API expects its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyHeader {
    /// `x-api-key: KEY`, as Anthropic's.
    XApiKey,
    /// `Authorization: Bearer KEY`, as OpenAI's and those made like it.
    Bearer,
}

impl fmt::Debug for Gateway {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl fmt::Debug for StartTurn {
    /// Names only: the rest may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartTurn").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// What a keeper answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Response {
    /// It holds now.
    Done,
    /// The turn runs, or ran before.
    Started {
        /// Whether this request started it; if not, it was claimed earlier and nothing changed.
        fresh: bool,
    },
    /// How things are.
    Status(Status),
    /// It was not done.
    Refused {
        /// Which kind of no.
        refusal: Refusal,
        /// Why, as a fragment.
        message: String,
    },
}

/// Why a keeper says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It speaks another version.
    Version,
    /// It does not understand the request.
    Malformed,
    /// No such turn was ever claimed.
    NoSuchTurn,
    /// Not while the sandbox is paused.
    Paused,
    /// Not while the sandbox ends.
    Ending,
    /// The system refused.
    Failed,
}

/// How a sandbox is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Whether it is suspended.
    pub paused: bool,
    /// Whether it was suspended since its time was over, and not by the app.
    pub paused_by_timeout: bool,
    /// Running time left.
    pub remaining_ms: u64,
    /// Whether memory and processor limits hold by force.
    pub limits_enforced: bool,
    /// Where the model's endpoint listens, on the loopback the sandbox sees.
    pub gateway_port: u16,
    /// The turns whose `exit` is not written yet.
    pub turns: Vec<TurnStatus>,
}

/// How an open turn is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TurnStatus {
    /// Which.
    pub turn: String,
    /// Bytes in its spool so far.
    pub out_len: u64,
    /// The same of its errors.
    pub err_len: u64,
    /// Whether it waits for [`Request::AllowSpool`].
    pub capped: bool,
    /// What keeps its output from the disk, if something does; it is tried again every second.
    pub blocked: Option<String>,
}

/// Writes one frame.
pub fn write_frame(to: &mut impl Write, head: &impl Serialize, body: &[u8]) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    let lengths = [VERSION, length(&head)?, length(body)?];
    let mut frame = Vec::with_capacity(12 + head.len());
    lengths.iter().for_each(|number| frame.extend_from_slice(&number.to_le_bytes()));
    frame.extend_from_slice(&head);
    to.write_all(&frame)?;
    to.write_all(body)?;
    to.flush()
}

/// Reads one frame; `None` at the end of the stream. An unknown version is [`io::ErrorKind::Unsupported`].
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut numbers = [0; 12];
    match from.read_exact(&mut numbers) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let number = |at: usize| u32::from_le_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
    if number(0) != VERSION {
        let message = format!("version {} of the protocol, where {VERSION} is spoken", number(0));
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let head: T = serde_json::from_slice(&read_part(from, number(4), HEAD_LIMIT)?)?;
    Ok(Some((head, read_part(from, number(8), BODY_LIMIT)?)))
}

fn read_part(from: &mut impl Read, length: u32, limit: u32) -> io::Result<Vec<u8>> {
    if length > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes where {limit} are the most")));
    }
    let mut part = Vec::new();
    // `take`, so that a false length costs no memory before the bytes are there.
    from.take(u64::from(length)).read_to_end(&mut part)?;
    if part.len() as u64 != u64::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(part)
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a frame over 4 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_was_sent() {
        let mut wire = Vec::new();
        write_frame(&mut wire, &Request::Extend { remaining_ms: 7 }, b"body").unwrap();
        let (request, body) = read_frame::<Request>(&mut &wire[..]).unwrap().unwrap();
        assert!(matches!(request, Request::Extend { remaining_ms: 7 }));
        assert_eq!(body, b"body");
        assert!(read_frame::<Request>(&mut &wire[..0]).unwrap().is_none(), "an empty stream is an end, not an error");
    }

    #[test]
    fn another_version_is_told_from_a_broken_frame() {
        let mut wire = Vec::new();
        write_frame(&mut wire, &Request::Status, b"").unwrap();
        wire[0] = 99;
        assert_eq!(read_frame::<Request>(&mut &wire[..]).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_false_length_is_refused_before_memory_is_taken() {
        let wire = [VERSION.to_le_bytes(), u32::MAX.to_le_bytes(), [0; 4]].concat();
        assert_eq!(read_frame::<Request>(&mut &wire[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn debug_shows_no_secret() {
        let turn = StartTurn {
            turn: "t1".into(),
            argv: vec!["a".into()],
            env: vec![("KEY".into(), "sk-secret".into())],
            redact: vec!["sk-secret".into()],
            gateway: Some(Gateway {
                upstream: "https://api.example".into(),
                header: KeyHeader::Bearer,
                key: "sk-secret".into(),
                token: "sk-secret".into(),
            }),
        };
        assert!(!format!("{:?}", turn.gateway).contains("sk-secret"));
        assert!(!format!("{:?}", Request::StartTurn(turn)).contains("sk-secret"));
    }
}
