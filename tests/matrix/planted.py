"""Errors that are planted into the records of a bank: figures that no error can move say nothing."""

import bank
from harness import check


def plant_pending(site, ledger):
    """Some of the lanes are in the hands of a worker that does not go on, which ends long before its lease does."""
    site.stop_between_transactions(site.workers("log")[0])
    site.touch_all()
    check("events of one lane that stay unpublished are seen", ledger.settle(2) is not None)
    site.continue_processes()
    check("and they are published then", ledger.settle(60), None)


def plant(site, ledgers):
    """Plants one error of each kind, and checks that it is counted and nothing else is."""
    plant_pending(site, ledgers["log"])
    kind, ledger = next(iter(ledgers.items()))
    ledger.take()
    source = bank.database(kind)
    effect = "INSERT INTO reader.effect (event_id, account_id, version)"
    planted = [
        ("an event that is committed and never applied", {"lost": 2},  # in both places
         "INSERT INTO bank.journal (event_id, account_id, version) VALUES (gen_random_uuid(), '1', 1)"),
        ("an effect of an event that is not committed", {"ghosts": 1}, f"{effect} VALUES (gen_random_uuid(), 'nobody', 1)"),
        ("an effect that happens twice", {"twice": 1}, f"{effect} SELECT event_id, account_id, version FROM reader.effect LIMIT 1"),
        ("an effect after a later one of its key", {"ghosts": 2, "disordered": 1},
         f"{effect} VALUES (gen_random_uuid(), 'somebody', 2), (gen_random_uuid(), 'somebody', 1)"),
    ]
    for what, expected, statement in planted:
        site.cluster.sql(source, statement)
        figures, differences = ledger.take()
        check(f"{what} is counted", figures.wrong(), expected)
        check("and the projections are as before", differences, [])
    site.cluster.sql(source, "UPDATE reader.account SET balance = balance + 1")
    check("a projection that is not its source is seen", len(ledger.take()[1]), 1)
