-- What was done through consoles. `postbox console` writes a line with each action, in the transaction of the action.

CREATE TABLE postbox.console_action (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    acted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    acted_by name NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    filter jsonb,
    reason text,
    affected bigint NOT NULL
);
CREATE INDEX console_action_by ON postbox.console_action (acted_by, id);
COMMENT ON TABLE postbox.console_action IS
$$What was done through `postbox console`, one row for each action. An action that failed has none. `prune_console_actions` deletes old ones.

Rights: a role sees its own actions; members of pg_monitor and postbox_operator see all.$$;
COMMENT ON COLUMN postbox.console_action.id IS 'The number of the row.';
COMMENT ON COLUMN postbox.console_action.acted_at IS 'When it was done.';
COMMENT ON COLUMN postbox.console_action.acted_by IS 'The role that did it.';
COMMENT ON COLUMN postbox.console_action.action IS 'What was done: pause, resume, cancel, redrive, discard, finish, seek or prune.';
COMMENT ON COLUMN postbox.console_action.subject IS 'The kind and the name of what it was done to.';
COMMENT ON COLUMN postbox.console_action.filter IS 'Which events were selected, or until when something is paused. NULL if nothing was said.';
COMMENT ON COLUMN postbox.console_action.reason IS 'The reason, as given. NULL if none was.';
COMMENT ON COLUMN postbox.console_action.affected IS 'How many events, publications, subscriptions and the like it changed.';
ALTER TABLE postbox.console_action ENABLE ROW LEVEL SECURITY;
SELECT pg_catalog.pg_extension_config_dump('postbox.console_action', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.console_action_id_seq', '');
REVOKE ALL ON postbox.console_action FROM PUBLIC;
GRANT SELECT ON postbox.console_action TO PUBLIC;
