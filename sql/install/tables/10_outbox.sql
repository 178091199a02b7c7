-- Outboxes: event tables of services, in their own schemas.

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
    generations_since timestamptz,
    version_floor bigint NOT NULL DEFAULT 0,
    CHECK ((kind = 'log') = (generation_span IS NOT NULL))
);
COMMENT ON TABLE postbox.outbox IS
$$One row for each outbox of this database. Only the functions of outboxes change it.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.outbox.relation IS 'The event table';
COMMENT ON COLUMN postbox.outbox.kind IS 'log or table; see create_outbox';
COMMENT ON COLUMN postbox.outbox.counter IS 'The version counter: the table with the last counted version of each aggregate';
COMMENT ON COLUMN postbox.outbox.parked IS 'Log: the table of parked events, which could not be published or wait behind one that could not; NULL for kind table';
COMMENT ON COLUMN postbox.outbox.retention IS 'How long published events are kept; NULL: forever';
COMMENT ON COLUMN postbox.outbox.adopted IS 'Whether adopt_outbox registered a table that existed before; if so, drop_outbox keeps it';
COMMENT ON COLUMN postbox.outbox.columns IS 'Adopted table: standard name -> name in the table, where they differ, such as {"aggregate_id": "aggregateid"}';
COMMENT ON COLUMN postbox.outbox.created_at IS 'When the outbox was created, adopted or registered';
COMMENT ON COLUMN postbox.outbox.generation_span IS 'Log: how long a generation, and so its partition, is written to; NULL for kind table';
COMMENT ON COLUMN postbox.outbox.generations_since IS
    'Log: since when events are written to generations of this span; NULL: since the outbox was created. Nothing is purged before the retention has passed since then';
COMMENT ON COLUMN postbox.outbox.version_floor IS 'Aggregates that the version counter does not have begin above this version; not 0 if the counter was lost once';
SELECT pg_catalog.pg_extension_config_dump('postbox.outbox', '');
GRANT SELECT ON postbox.outbox TO PUBLIC;

-- The version counter has the versions that Postbox counts. For the versions that emitters give to events of a log, this table has an
-- upper bound of each aggregate type: extension/emit/given_version.h. No row is ever changed.
CREATE TABLE postbox.given_version (
    outbox         regclass NOT NULL,
    aggregate_type text     NOT NULL COLLATE "C",
    version        bigint   NOT NULL
);
CREATE INDEX given_version_idx ON postbox.given_version (outbox, aggregate_type, version);
COMMENT ON TABLE postbox.given_version IS
    'Internal: log outboxes: the version floor of each aggregate type, the greatest version of its rows; versions that are counted begin above it.';
COMMENT ON COLUMN postbox.given_version.outbox IS 'The outbox';
COMMENT ON COLUMN postbox.given_version.aggregate_type IS 'The aggregate type';
COMMENT ON COLUMN postbox.given_version.version IS 'No version that was given before the row was added is greater';
SELECT pg_catalog.pg_extension_config_dump('postbox.given_version', '');
REVOKE ALL ON postbox.given_version FROM PUBLIC;
GRANT SELECT ON postbox.given_version TO PUBLIC;
