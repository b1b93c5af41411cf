-- The work: how a project's is delivered, what a sandbox's came to, and its checkpoints with all they are shown with.

ALTER TABLE projects ADD COLUMN deliver TEXT NOT NULL DEFAULT 'on_end'
    CHECK (deliver IN ('on_turn', 'on_end', 'ask', 'never'));
ALTER TABLE projects ADD COLUMN is_reviewed_first INTEGER NOT NULL DEFAULT 0 CHECK (is_reviewed_first IN (0, 1));
ALTER TABLE projects ADD COLUMN is_draft INTEGER NOT NULL DEFAULT 0 CHECK (is_draft IN (0, 1));
ALTER TABLE projects ADD COLUMN commit_author TEXT;          -- NULL: the app's own
ALTER TABLE projects ADD COLUMN commit_email TEXT;
ALTER TABLE projects ADD COLUMN commit_message TEXT;

ALTER TABLE sandboxes ADD COLUMN begin_checkpoint TEXT;      -- the checkpoint it began from
ALTER TABLE sandboxes ADD COLUMN includes_uncommitted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN pushed_branch TEXT;
ALTER TABLE sandboxes ADD COLUMN pushed_commit TEXT;
ALTER TABLE sandboxes ADD COLUMN pr_reason TEXT;             -- why there is none, or why it failed
ALTER TABLE sandboxes ADD COLUMN pr_is_closed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN delivery TEXT NOT NULL DEFAULT '{}';  -- what the person said of it, as JSON

-- Neither was written before.
DROP TABLE checkpoints;
CREATE TABLE checkpoints (
    id            TEXT PRIMARY KEY,
    sandbox       TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    name          TEXT NOT NULL,                 -- its ref is refs/courier/<sandbox>/<name>
    turn          INTEGER,                       -- the number of the turn it was taken after
    commit_id     TEXT NOT NULL,
    tree_id       TEXT NOT NULL,
    head          TEXT NOT NULL,                 -- the agent's own commit it stands on
    files_changed INTEGER NOT NULL,              -- against the checkpoint before
    skipped       TEXT NOT NULL DEFAULT '[]',    -- paths that could not be taken, and why
    lfs           TEXT NOT NULL DEFAULT '[]',
    workflows     TEXT NOT NULL DEFAULT '[]',
    created_at    INTEGER NOT NULL,
    UNIQUE (sandbox, name)
) STRICT;
CREATE INDEX checkpoints_of_sandbox ON checkpoints (sandbox, created_at, id);

DROP TABLE ending_steps;
CREATE TABLE ending_steps (
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    step       TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'skipped', 'failed', 'held')),
    detail     TEXT NOT NULL DEFAULT '',
    remedy     TEXT NOT NULL DEFAULT '',
    attempts   INTEGER NOT NULL DEFAULT 0,
    at         INTEGER NOT NULL,
    PRIMARY KEY (sandbox, step)
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_with_pull_request ON sandboxes (pr_status) WHERE pr_status IN ('creating', 'created');
