-- Outboxes: a service's own event table in the service's own schema.

CREATE TABLE postbox.outbox (
    relation   regclass    PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('table', 'log')),
    counter    regclass    NOT NULL UNIQUE,
    parked     regclass    UNIQUE,
    retention  interval    CHECK (retention > interval '0'),
    adopted    boolean     NOT NULL DEFAULT false,
    columns    jsonb       NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    generation_span interval CHECK (generation_span >= interval '1 second'),
    version_floor bigint NOT NULL DEFAULT 0,
    CHECK ((kind = 'log') = (generation_span IS NOT NULL))
);
COMMENT ON TABLE postbox.outbox IS 'The outboxes of this database; only create_outbox, adopt_outbox and drop_outbox change it';
COMMENT ON COLUMN postbox.outbox.counter IS 'The table that counts the versions of each aggregate';
COMMENT ON COLUMN postbox.outbox.parked IS 'Log outbox: the table of events that could not be published';
COMMENT ON COLUMN postbox.outbox.retention IS 'How long published events are kept; NULL keeps them forever';
COMMENT ON COLUMN postbox.outbox.adopted IS 'Whether the table existed before; if so, drop_outbox keeps it';
COMMENT ON COLUMN postbox.outbox.columns IS 'Standard name -> name in the table, where they differ: {"aggregate_id": "aggregateid"}';
COMMENT ON COLUMN postbox.outbox.generation_span IS 'Log outbox: how long a generation of events is written to; NULL for kind table';
COMMENT ON COLUMN postbox.outbox.version_floor IS 'Aggregates that the version counter lacks begin above this version, since it was lost once';
SELECT pg_catalog.pg_extension_config_dump('postbox.outbox', '');
GRANT SELECT ON postbox.outbox TO PUBLIC;

-- The version counter knows the versions that Postbox counts. Of those that emitters give to events of a log, this says of each
-- aggregate type what none is above: extension/emit/given_version.h. No row is ever changed.
CREATE TABLE postbox.given_version (
    outbox         regclass NOT NULL,
    aggregate_type text     NOT NULL COLLATE "C",
    version        bigint   NOT NULL
);
CREATE INDEX given_version_idx ON postbox.given_version (outbox, aggregate_type, version);
COMMENT ON TABLE postbox.given_version IS
    'Log outboxes: the version floor of each aggregate type, which no version is above that was given before versions of the type were counted; the greatest counts';
SELECT pg_catalog.pg_extension_config_dump('postbox.given_version', '');
REVOKE ALL ON postbox.given_version FROM PUBLIC;
GRANT SELECT ON postbox.given_version TO PUBLIC;
