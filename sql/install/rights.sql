-- Rights on functions and views that differ from PostgreSQL's defaults. They are state: if an upgrade granted or revoked them again,
-- rights that an administrator has granted would become initial rights of the extension, which no dump contains. So migrations set
-- the rights of new objects (sql/upgrade).

REVOKE EXECUTE ON FUNCTION postbox.configuration_changed() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.claim_publication(text) FROM PUBLIC;
-- Publishing uses Google credentials for a topic that the caller chooses.
REVOKE EXECUTE ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text, text, text),
    postbox.alter_publication(text, text, text[], int, interval, interval, text, text, int, text) FROM PUBLIC;
GRANT SELECT ON postbox.backfill_status TO PUBLIC;
GRANT SELECT ON postbox.rebuild_status TO PUBLIC;
GRANT SELECT ON postbox.paused_keys TO PUBLIC;
GRANT SELECT ON postbox.publication_status TO PUBLIC;
GRANT SELECT ON postbox.lane_progress TO PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.begin_here(regclass) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.resolve_unknown_origin(regclass, boolean) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.settle_foreign_events(regclass) FROM PUBLIC;
GRANT SELECT ON postbox.outbox_status TO PUBLIC;
GRANT SELECT ON postbox.inbox_problem TO PUBLIC;
GRANT SELECT ON postbox.projection_status TO PUBLIC;
REVOKE ALL ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, interval, interval, interval, interval, int, int, int, bigint, text),
    postbox.alter_subscription(text, text, int, bigint, int, int, interval, text, int, interval, interval, text, interval,
        interval, interval, interval, int, int, int, bigint, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.list_workers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION postbox.list_workers() TO pg_monitor, postbox_operator;
GRANT SELECT ON postbox.workers TO pg_monitor, postbox_operator;
REVOKE EXECUTE ON FUNCTION postbox.list_metric_names(), postbox.list_metrics(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION postbox.list_metric_names(), postbox.list_metrics(text) TO pg_monitor, postbox_operator;
GRANT SELECT ON postbox.metrics TO pg_monitor, postbox_operator;
REVOKE EXECUTE ON FUNCTION postbox.create_credential(text, text, text, text), postbox.alter_credential(text, text, text, text),
    postbox.drop_credential(text), postbox.grant_credential(text, regrole), postbox.revoke_credential(text, text) FROM PUBLIC;
GRANT SELECT ON postbox.credential_status TO pg_monitor, postbox_operator;
REVOKE EXECUTE ON FUNCTION postbox.delete_dependents() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.forget_dropped() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.follow_altered() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION postbox.refuse_drop() FROM PUBLIC;
