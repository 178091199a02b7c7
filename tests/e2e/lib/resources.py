"""Topics and subscriptions, as orders of tests/node/peer.js, for the embedded emulator."""

from outcome import Failure


def embedded_option(order):
    """The option of the emulator that stands for an order."""
    if "create_topic" in order:
        return ["--topic", order["create_topic"]]
    parts = [f"{order['create_subscription']}={order['topic']}"]
    options = dict(order["options"])
    if options.pop("enableMessageOrdering", False):
        parts.append("ordered")
    if options.pop("retainAckedMessages", False):
        parts.append("retain-acked")
    if "retryPolicy" in options:
        policy = options.pop("retryPolicy")
        parts.append("retry=" + ":".join(str(1000 * policy[bound]["seconds"]) for bound in ("minimumBackoff", "maximumBackoff")))
    if "dead_letter_topic" in order:
        parts.append(f"dead-letter={order['dead_letter_topic']}:{order['max_delivery_attempts']}")
    if options:
        raise Failure(f"the embedded emulator has no option for {options}")
    return ["--subscription", ",".join(parts)]
