"""Which object is on which page of docs/reference, and in which order. Each object that users call or read is on one page; one that
is on none, or does not exist, is an error."""

import collections

Subject = collections.namedtuple("Subject", "title about objects")

SUBJECTS = {
    "outbox.md": Subject("Outboxes", "An outbox is a table into which a service writes its events.", (
        "create_outbox", "alter_outbox", "adopt_outbox", "register_outbox", "drop_outbox", "repair_outbox", "purge_outbox",
        "settle_foreign_events", "resolve_unknown_origin")),
    "emit.md": Subject("Emitting events", "How a service stores an event in its transaction.", ("outbox_emit", "outbox_emit_json", "receipt", "wait_published")),
    "changes.md": Subject("Change triggers", "Triggers that emit an event for each change of a table.", (
        "create_change_triggers", "drop_change_triggers", "emit_changes")),
    "backfill.md": Subject("Backfills", "A backfill emits an event for each row that a table has already.", (
        "create_backfill", "run_backfill", "pause_backfill", "resume_backfill", "cancel_backfill", "drop_backfill")),
    "publication.md": Subject("Publications", "A publication sends the events of an outbox to a topic.", (
        "create_publication", "alter_publication", "pause_publication", "resume_publication", "drop_publication", "claim_publication",
        "redrive", "discard", "republish", "cancel_republish", "republished", "lane_slice")),
    "inbox.md": Subject("Inboxes", "An inbox is a table in which a consumer remembers events. These functions create it and apply events.", (
        "create_inbox", "alter_inbox", "register_inbox", "drop_inbox", "repair_inbox", "purge_inbox", "inbox_apply", "inbox_apply_batch",
        "event_version", "wait_for_version", "event", "outcome")),
    "projection.md": Subject("Projections and handlers", "What an event changes in the database of its consumer.", (
        "create_projection", "alter_projection", "pause_projection", "resume_projection", "drop_projection",
        "create_handler", "alter_handler", "pause_handler", "resume_handler", "drop_handler")),
    "rebuild.md": Subject("Rebuilds", "A rebuild makes the target of a projection again from events that come once more.", (
        "rebuild_projection", "finish_rebuild", "cancel_rebuild")),
    "dead-letter.md": Subject("Dead letters", "Events that could not be applied.", (
        "record_dead_letter", "redrive_dead_letter", "redrive_dead_letters", "discard_dead_letter", "discard_dead_letters")),
    "subscription.md": Subject("Subscriptions", "How the messages of a Pub/Sub subscription get into an inbox.", (
        "create_subscription", "alter_subscription", "pause_subscription", "resume_subscription", "drop_subscription")),
    "credential.md": Subject("Credentials", "Named identities under which Postbox calls Pub/Sub.", (
        "create_credential", "alter_credential", "drop_credential", "grant_credential", "revoke_credential")),
    "status.md": Subject("Status", "What Postbox does, what is wrong, and what to do.", (
        "doctor", "finding", "publication_status", "outbox_status", "paused_keys", "expired_event", "backfill_status", "rebuild_status", "workers", "metrics", "credential_status", "inbox_problem",
        "projection_status", "subscription_status", "dead_letter", "parked_key", "discarded_event",
        "record_audit", "audit", "console_action", "prune_console_actions")),
    "tables.md": Subject("Tables", "The configuration and the state of Postbox. Functions change these tables; every role may read them, unless the table says otherwise.", (
        "outbox", "publication", "publication_state", "lane", "backfill", "rebuild", "inbox", "subscription", "projection", "handler", "credential",
        "credential_grant")),
}
