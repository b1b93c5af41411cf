-- The list asks for each status by itself and counts what it finds; `deleted_at` lets it count without reading a row.
DROP INDEX sandboxes_by_status;
CREATE INDEX sandboxes_by_status ON sandboxes (status, created_at DESC, id DESC, deleted_at) WHERE deleted_at IS NULL;
CREATE INDEX sandboxes_of_project_by_status ON sandboxes (project, status, created_at DESC, id DESC, deleted_at)
WHERE deleted_at IS NULL;

-- The lengths stand in the index, because in the row they come after the bytes.
DROP INDEX stream_log_of_sandbox;
CREATE INDEX stream_log_of_sandbox ON stream_log (sandbox, id, length);
