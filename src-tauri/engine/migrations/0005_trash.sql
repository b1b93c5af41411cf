-- The trash: what was purged is gone bit by bit, its row last; what was cleaned keeps everything but its files.

ALTER TABLE sandboxes ADD COLUMN purge_at INTEGER;           -- it is being purged since then, and cannot be restored
ALTER TABLE sandboxes ADD COLUMN files_cleaned_at INTEGER;   -- its workspace, home and spools were removed then

CREATE INDEX sandboxes_deleted ON sandboxes (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX sandboxes_of_parent ON sandboxes (parent) WHERE parent IS NOT NULL;

-- A row that is removed is looked for in every table that refers to it: without an index, in all of it.
CREATE INDEX turns_of_message ON turns (message);
CREATE INDEX turns_of_reply ON turns (reply);
CREATE INDEX usage_records_of_sandbox ON usage_records (sandbox);
CREATE INDEX usage_records_of_turn ON usage_records (turn);
CREATE INDEX learnings_of_sandbox ON learnings (sandbox);

-- Here an index would cost every item that is stored. A turn is only ever removed with its sandbox, and so are its items:
-- nothing has to look for them.
CREATE TABLE items (
    sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,                     -- order in the sandbox
    turn    TEXT NOT NULL,                        -- of this sandbox
    number  INTEGER NOT NULL,                     -- the turn's
    body    TEXT NOT NULL,                        -- the item as JSON
    is_parsed INTEGER NOT NULL,                   -- 1: from the agent's output, 0: from the engine
    at      INTEGER NOT NULL,
    PRIMARY KEY (sandbox, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO items SELECT sandbox, seq, turn, number, body, is_parsed, at FROM transcript_items;
DROP TABLE transcript_items;
ALTER TABLE items RENAME TO transcript_items;
