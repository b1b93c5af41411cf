-- Several agents: some count what they consume over the whole session, so that a turn's part is a difference.

ALTER TABLE turns ADD COLUMN session_usage TEXT;             -- what the agent said its session had consumed, as JSON
