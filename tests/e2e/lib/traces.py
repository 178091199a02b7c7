"""A collector of traces, and what it has got."""

import base64
import json

import harness
from harness import Failure, Hopeless, wait_until


def _hex(text):
    return base64.b64decode(text or "").hex()


def _attributes(pairs):
    """Integers of 64 bits are strings in JSON."""
    return {pair["key"]: pair["value"].get("stringValue", pair["value"].get("intValue")) for pair in pairs or []}


def _span(span, service):
    return {
        "service": service, "name": span["name"], "kind": span["kind"].removeprefix("SPAN_KIND_"),
        "trace": _hex(span["traceId"]), "id": _hex(span["spanId"]), "parent": _hex(span.get("parentSpanId")),
        "attributes": _attributes(span.get("attributes")), "error": span.get("status", {}).get("message", ""),
        "failed": span.get("status", {}).get("code") == "STATUS_CODE_ERROR",
        "links": [(_hex(link["traceId"]), _hex(link["spanId"])) for link in span.get("links", [])],
        "linked_messages": [_attributes(link.get("attributes")).get("messaging.message.id") for link in span.get("links", [])],
        "start": int(span["startTimeUnixNano"]), "end": int(span["endTimeUnixNano"])}


class Collector:
    """tests/support/otlp_collector.cc."""

    def __init__(self, bed):
        self._lines = []
        self._process = bed.start("collector", [harness.build_directory() / "tests" / "otlp_collector"], on_line=self._lines.append)
        wait_until("the collector listens", lambda: self._lines or self._running())
        self.endpoint = "http://" + self._lines[0].removeprefix("listening on ")

    def _running(self):
        if not self._process.running():
            raise Hopeless(f"the collector has ended: {self._process.text()}")

    def stop(self):
        self._process.stop()

    def spans(self):
        found = []
        for line in list(self._lines)[1:]:
            for of_service in json.loads(line)["resourceSpans"]:
                service = _attributes(of_service["resource"]["attributes"])["service.name"]
                for of_scope in of_service["scopeSpans"]:
                    found += [_span(span, service) for span in of_scope["spans"]]
        return found

    def trace(self, trace, names):
        """The spans of a trace by their names, of several the first; waits until each of `names` is there."""
        def complete():
            spans = [span for span in self.spans() if span["trace"] == trace]
            missing = set(names) - {span["name"] for span in spans}
            if missing:
                raise Failure(f"missing: {missing}; there are {[span['name'] for span in spans]}")
            return spans

        spans = wait_until(f"trace {trace} has all its spans", complete)
        return {name: next(span for span in spans if span["name"] == name) for name in {span["name"] for span in spans}}
