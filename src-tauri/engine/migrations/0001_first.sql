-- Times are Unix milliseconds, money is integer nano-dollars, ids are UUIDs as text, lists are JSON.

CREATE TABLE projects (
    id               TEXT PRIMARY KEY,
    name             TEXT NOT NULL,
    source           TEXT NOT NULL,               -- a path or a URL, never with a secret in it
    remote_url       TEXT,                        -- where pushes go; recorded once, when the project is made
    default_branch   TEXT NOT NULL,
    is_sample        INTEGER NOT NULL DEFAULT 0 CHECK (is_sample IN (0, 1)),
    active_sandboxes INTEGER NOT NULL DEFAULT 0 CHECK (active_sandboxes >= 0),  -- kept by the triggers below
    created_at       INTEGER NOT NULL
) STRICT;

CREATE TABLE templates (
    id           TEXT PRIMARY KEY,
    project      TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    agent        TEXT NOT NULL,
    model        TEXT,
    image        TEXT,
    timeout_ms   INTEGER NOT NULL,
    memory_mb    INTEGER NOT NULL,
    cpus         INTEGER NOT NULL,
    setup_script TEXT
) STRICT;

CREATE TABLE workflows (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    definition TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    id         TEXT PRIMARY KEY,
    workflow   TEXT NOT NULL REFERENCES workflows (id) ON DELETE CASCADE,
    status     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;

CREATE TABLE run_steps (
    id       TEXT PRIMARY KEY,
    run      TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    status   TEXT NOT NULL,
    error    TEXT,
    UNIQUE (run, position)
) STRICT;

CREATE TABLE sandboxes (
    id              TEXT PRIMARY KEY,
    project         TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    title           TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('creating', 'running', 'paused', 'killed', 'error')),
    activity        TEXT NOT NULL DEFAULT 'none' CHECK (activity IN ('none', 'pausing', 'resuming', 'stopping')),
    ending          TEXT,                         -- while stopping: where to; when killed: the reason
    error_kind      TEXT,
    error_message   TEXT,
    error_remedy    TEXT,
    step            TEXT,                         -- what the work in hand does now, for the screen
    headline        TEXT NOT NULL DEFAULT '',     -- what happens now or happened last, for the screen
    provider        TEXT NOT NULL,
    provider_id     TEXT,
    agent           TEXT NOT NULL,
    agent_version   TEXT,
    agent_session   TEXT,                         -- the newest session id the agent named
    billed_to       TEXT,
    model           TEXT,
    template        TEXT REFERENCES templates (id) ON DELETE SET NULL,
    timeout_ms      INTEGER NOT NULL,
    on_timeout      TEXT NOT NULL,
    memory_mb       INTEGER NOT NULL,
    cpus            INTEGER NOT NULL,
    limits_enforced INTEGER NOT NULL DEFAULT 0,
    network         TEXT NOT NULL,
    allowed_hosts   TEXT NOT NULL,
    variables       TEXT NOT NULL,                -- names and plain values; secrets live in the keychain
    setup_script    TEXT,
    origin          TEXT NOT NULL DEFAULT 'standalone',
    origin_issue    INTEGER,
    origin_url      TEXT,
    run_step        TEXT REFERENCES run_steps (id) ON DELETE SET NULL,
    parent          TEXT REFERENCES sandboxes (id) ON DELETE SET NULL,
    job             TEXT,
    repository      TEXT NOT NULL,
    base_branch     TEXT NOT NULL,
    base_commit     TEXT NOT NULL,
    branch          TEXT NOT NULL,
    head            TEXT,
    pr_status       TEXT,
    pr_url          TEXT,
    pr_number       INTEGER,
    learning_status TEXT,
    learning_extraction_error TEXT,
    learning_version INTEGER,
    is_unsaved      INTEGER NOT NULL DEFAULT 0 CHECK (is_unsaved IN (0, 1)),
    crashes         INTEGER NOT NULL DEFAULT 0,   -- of the agent, in a row
    created_at      INTEGER NOT NULL,
    started_at      INTEGER,
    ended_at        INTEGER,
    expires_at      INTEGER,                      -- while running
    remaining_ms    INTEGER,                      -- while paused
    deleted_at      INTEGER
) STRICT;

CREATE INDEX sandboxes_newest ON sandboxes (created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX sandboxes_of_project ON sandboxes (project, created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX sandboxes_by_status ON sandboxes (status, created_at DESC, id DESC) WHERE deleted_at IS NULL;

-- The counter: running and not deleted. No code path can forget it.
CREATE TRIGGER sandboxes_counted_in AFTER INSERT ON sandboxes
WHEN NEW.status = 'running' AND NEW.deleted_at IS NULL BEGIN
    UPDATE projects SET active_sandboxes = active_sandboxes + 1 WHERE id = NEW.project;
END;
CREATE TRIGGER sandboxes_counted_out AFTER DELETE ON sandboxes
WHEN OLD.status = 'running' AND OLD.deleted_at IS NULL BEGIN
    UPDATE projects SET active_sandboxes = active_sandboxes - 1 WHERE id = OLD.project;
END;
CREATE TRIGGER sandboxes_recounted AFTER UPDATE OF status, deleted_at, project ON sandboxes BEGIN
    UPDATE projects SET active_sandboxes = active_sandboxes - 1
    WHERE id = OLD.project AND OLD.status = 'running' AND OLD.deleted_at IS NULL;
    UPDATE projects SET active_sandboxes = active_sandboxes + 1
    WHERE id = NEW.project AND NEW.status = 'running' AND NEW.deleted_at IS NULL;
END;

CREATE TABLE transitions (
    sandbox     TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,
    from_status TEXT,
    to_status   TEXT NOT NULL,
    reason      TEXT,
    at          INTEGER NOT NULL,
    PRIMARY KEY (sandbox, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE running_intervals (
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    PRIMARY KEY (sandbox, started_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    id         TEXT PRIMARY KEY,
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    content    TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('streaming', 'completed', 'error')),
    delivery   TEXT CHECK (delivery IN ('queued', 'delivered')),
    position   INTEGER NOT NULL DEFAULT 0,        -- order in the queue: a message sent by interrupting goes first
    created_at INTEGER NOT NULL,
    UNIQUE (sandbox, seq),
    CHECK ((role = 'user') = (delivery IS NOT NULL))
) STRICT;

CREATE INDEX messages_queued ON messages (sandbox, position, seq) WHERE delivery = 'queued';

CREATE TABLE turns (
    id             TEXT PRIMARY KEY,
    sandbox        TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    number         INTEGER NOT NULL,              -- 1, 2, 3 … in its sandbox
    message        TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,   -- the person's
    reply          TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,   -- the agent's
    attempt        INTEGER NOT NULL,
    session_before TEXT,                          -- the session it continues, if any
    out_offset     INTEGER NOT NULL DEFAULT 0,    -- bytes of the spool that were ingested
    err_offset     INTEGER NOT NULL DEFAULT 0,
    is_interrupted INTEGER NOT NULL DEFAULT 0,    -- the person or an ending asked for its end
    exit_code      INTEGER,
    exit_signal    INTEGER,
    error_kind     TEXT,
    error_message  TEXT,
    agent_session  TEXT,
    input_tokens       INTEGER,
    output_tokens      INTEGER,
    cache_write_tokens INTEGER,
    cache_read_tokens  INTEGER,
    is_usage_complete  INTEGER NOT NULL DEFAULT 0,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    UNIQUE (sandbox, number, attempt)
) STRICT;

CREATE INDEX turns_open ON turns (sandbox) WHERE ended_at IS NULL;

-- The raw log, in the order it was read. `id` grows over all sandboxes and is the terminal's cursor.
CREATE TABLE stream_log (
    id         INTEGER PRIMARY KEY,
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    turn       TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    stream     TEXT NOT NULL CHECK (stream IN ('out', 'err')),
    bytes      BLOB NOT NULL,
    length     INTEGER NOT NULL,                  -- of the bytes when not compressed
    is_compressed INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX stream_log_of_sandbox ON stream_log (sandbox, id);
CREATE INDEX stream_log_of_turn ON stream_log (turn, id);

-- Derived from the raw log; can be rebuilt.
CREATE TABLE transcript_items (
    sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,                     -- order in the sandbox
    turn    TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL,                     -- the turn's
    body    TEXT NOT NULL,                        -- the item as JSON
    is_parsed INTEGER NOT NULL,                   -- 1: from the agent's output, 0: from the engine
    at      INTEGER NOT NULL,
    PRIMARY KEY (sandbox, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    id         TEXT PRIMARY KEY,
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    turn       TEXT REFERENCES turns (id) ON DELETE SET NULL,
    commit_id  TEXT NOT NULL,
    skipped    TEXT NOT NULL DEFAULT '[]',
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE ending_steps (
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    step       TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'skipped', 'failed')),
    error      TEXT,
    attempts   INTEGER NOT NULL DEFAULT 0,
    at         INTEGER NOT NULL,
    PRIMARY KEY (sandbox, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id          TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    key         TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('due', 'running', 'done', 'failed')),
    payload     TEXT NOT NULL DEFAULT '{}',
    lease_until INTEGER,
    due_at      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT,
    UNIQUE (kind, key)
) STRICT;

CREATE TABLE learnings (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    sandbox    TEXT REFERENCES sandboxes (id) ON DELETE SET NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('pattern', 'preference', 'pitfall', 'architecture')),
    text       TEXT NOT NULL,
    state      TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE learning_versions (
    project    TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    text       TEXT NOT NULL,
    is_active  INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project, number)
) STRICT, WITHOUT ROWID;

-- Amounts outlive their sandbox: project, title and amounts are kept when it is purged.
CREATE TABLE usage_records (
    id         TEXT PRIMARY KEY,
    project    TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    sandbox    TEXT REFERENCES sandboxes (id) ON DELETE SET NULL,
    turn       TEXT REFERENCES turns (id) ON DELETE SET NULL,
    title      TEXT NOT NULL,
    service    TEXT NOT NULL,
    model      TEXT,
    unit       TEXT NOT NULL,
    quantity   INTEGER NOT NULL,
    rate       INTEGER,                           -- nano-dollars per million units; NULL: unpriced
    cost       INTEGER,                           -- nano-dollars; NULL: unpriced
    is_complete INTEGER NOT NULL DEFAULT 1,
    at         INTEGER NOT NULL
) STRICT;

CREATE TABLE cost_rates (
    service    TEXT NOT NULL,
    model      TEXT NOT NULL,
    unit       TEXT NOT NULL,
    rate       INTEGER NOT NULL,
    source     TEXT NOT NULL,
    valid_from INTEGER NOT NULL,
    PRIMARY KEY (service, model, unit, valid_from)
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL                           -- JSON
) STRICT, WITHOUT ROWID;
