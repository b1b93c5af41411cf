-- Whether the agent had its key itself; else it asks its model through the gateway, or needs no key.
ALTER TABLE sandboxes ADD COLUMN is_key_inside INTEGER NOT NULL DEFAULT 0 CHECK (is_key_inside IN (0, 1));

-- Before there was a gateway, every key was inside.
UPDATE sandboxes SET is_key_inside = 1 WHERE billed_to IS NOT NULL;
