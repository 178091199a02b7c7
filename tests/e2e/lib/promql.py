"""What queries of Prometheus read, and what docs/guides/metrics.md says that there is."""

import re

from outcome import Failure

# What a scrape adds to every metric, and what Prometheus itself writes.
SCRAPE_LABELS = {"job", "instance"}
OF_PROMETHEUS = {"up": SCRAPE_LABELS, "ALERTS": {"alertname", "alertstate", "severity", *SCRAPE_LABELS}}
# The labels that the conventions of OpenTelemetry give to metrics with these names.
CONVENTIONS = {"messaging": {"messaging_system", "messaging_operation_name", "messaging_destination_name"},
               "rpc": {"rpc_system", "rpc_method", "rpc_response_status_code"}}
# A histogram is these series.
PARTS = {"_bucket": {"le"}, "_sum": set(), "_count": set()}

_TOKEN = re.compile(r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[[^\]]*\]|\d[\w.]*|[A-Za-z_:][\w:]*|\S''')
_WORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan", "start", "end"}
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}


def _rows(page, head):
    """The rows, without the backticks of the first cell, of the tables whose head begins with one of these."""
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        if rows[0][0] in head:
            yield from ([row[0].strip("`"), *row[1:]] for row in rows[2:])


class Query:
    """A query of Prometheus: `metrics` maps each metric that it reads to the labels that it compares; `grouping` are the labels of by (...), on (...) and
    so on."""

    def __init__(self, text):
        self.metrics, self.grouping = {}, set()
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        while self._at < len(self._tokens):
            self._take()

    def _next(self):
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self):
        token = self._next()
        self._at += 1
        if token == "{":
            raise Failure("a selector without the name of a metric")
        if not re.match(r"[A-Za-z_:]", token) or token.lower() in _WORDS:
            return
        if token in _GROUPING:
            if self._next() == "(":
                self.grouping |= self._labels(")")
        elif self._next() != "(" and self._next() not in _GROUPING:
            self.metrics.setdefault(token, set()).update(self._labels("}") if self._next() == "{" else ())

    def _labels(self, last):
        """The labels in the brackets that begin here."""
        found = set()
        while self._next() != last:
            token = self._next()
            if not token:
                raise Failure(f"no {last!r} in a query")
            if re.match(r"[A-Za-z_]", token):
                found.add(token)
            self._at += 1
        self._at += 1
        return found


class Catalogue:
    """The metrics in the tables of docs/guides/metrics.md, and the recording rules in those of docs/guides/prometheus.md.

    The columns of a table begin with the name and the type. Its other cells name the labels in backticks, but not those that the conventions give to all
    metrics of a kind. Those in the part of the puller have the label `subscription`."""

    def __init__(self, metrics, rules):
        self.labels, self.types = {}, {}
        for part in re.split(r"^## ", metrics, flags=re.MULTILINE):
            common = {"subscription"} if part.startswith("The puller") else set()
            for name, kind, *cells in _rows(part, {"metric", "name"}):
                self._add(name, kind, common | set(re.findall(r"`([a-z_]+)`", " ".join(cells))))
        self.rules = {row[0] for row in _rows(rules, {"recording rule"})}

    def _add(self, name, kind, labels):
        if kind not in {"counter", "gauge", "histogram"} or self.types.setdefault(name, kind) != kind:
            raise Failure(f"docs/guides/metrics.md: the type of {name} is {kind!r}")
        prefix = name.partition("_")[0]
        self.labels.setdefault(name, set()).update(labels | CONVENTIONS.get(prefix, set()))

    def series(self):
        """The labels of each series that a query may read."""
        found = {name: set(labels) for name, labels in OF_PROMETHEUS.items()}
        for name, labels in self.labels.items():
            parts = PARTS if self.types[name] == "histogram" else {"": set()}
            found.update({name + part: labels | more | SCRAPE_LABELS for part, more in parts.items()})
        return found

    def complaints(self, text):
        """What the query reads and the page does not have."""
        query, series = Query(text), self.series()
        if not query.metrics:
            return ["it reads no metric"]
        unknown = [f"there is no metric {name}" for name in query.metrics if name not in series]
        known = [name for name in query.metrics if name in series]
        unknown += [f"{name} has no label {label}" for name in known for label in sorted(query.metrics[name] - series[name])]
        labels = set().union(*(series[name] for name in known))
        return unknown + [f"no metric of it has the label {label}" for label in sorted(query.grouping - labels)]

    def labels_of(self, text):
        return set().union(*(self.series().get(name, set()) for name in Query(text).metrics))
