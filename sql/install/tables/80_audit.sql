-- The results of `postbox audit --record`, on the reading side: what the last comparison with the source has found.
--
-- Dumps leave them out: they are about this database, and one that is restored from a dump was not compared.

CREATE TABLE postbox.audit (
    subscription text        NOT NULL REFERENCES postbox.subscription (name) ON DELETE CASCADE ON UPDATE CASCADE,
    source       text        NOT NULL,
    status       text        NOT NULL CHECK (status IN ('clean', 'differences', 'incomplete')),
    watermark    timestamptz,
    checked_at   timestamptz NOT NULL DEFAULT now(),
    findings     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(findings) = 'object'),
    detail       text,
    PRIMARY KEY (subscription, source)
);
COMMENT ON TABLE postbox.audit IS
$$What `postbox audit --record` has found last, one row for each subscription and source: up to when nothing that was emitted is missing here. `record_audit` writes it.

Rights: the owner of the inbox, and members of pg_monitor and postbox_operator, see the rows of a subscription.$$;
COMMENT ON COLUMN postbox.audit.subscription IS 'The name of the subscription in this database.';
COMMENT ON COLUMN postbox.audit.source IS 'The database and the publication with which it was compared.';
COMMENT ON COLUMN postbox.audit.status IS
    '`clean`; `differences`; or `incomplete`: nothing differs in what could be compared, but something could not be compared, see `detail`.';
COMMENT ON COLUMN postbox.audit.watermark IS
    'Every compared event that was committed at the source and occurred before this time has arrived and is neither rejected nor parked; by the clock of the source. It '
    'does not go beyond the begin of the audit. NULL if nothing could be compared.';
COMMENT ON COLUMN postbox.audit.checked_at IS 'When the audit ended, by the clock of this server.';
COMMENT ON COLUMN postbox.audit.findings IS 'How many differences of each kind there are: a JSON object. Kinds without one are left out.';
COMMENT ON COLUMN postbox.audit.detail IS 'The first difference, or what could not be compared and why. NULL if the status is clean.';
ALTER TABLE postbox.audit ENABLE ROW LEVEL SECURITY;
REVOKE ALL ON postbox.audit FROM PUBLIC;
GRANT SELECT ON postbox.audit TO PUBLIC;
