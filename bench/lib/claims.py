"""Sentences of the documentation that say how fast something is, and the figures of the ledger that bear them out.

A claim holds while the newest figure, by its ratio, is on the right side of a number or of another figure. Where a sentence goes, its
claim goes too."""

import dataclasses
import operator

SIGNS = {"<=": operator.le, ">": operator.gt}


@dataclasses.dataclass
class Claim:
    file: str
    sentence: str
    bench: str
    case: str
    sign: str
    limit: float | str  # a number, or a case that is compared with the same one

    def problem(self, lines):
        """Why the ledger does not bear it out, or None."""
        now = newest(lines, self.bench, self.case)
        limit = newest(lines, self.bench, self.limit) if isinstance(self.limit, str) else self.limit
        if now is None or limit is None:
            return f"the ledger has no ratio of {self.bench} {self.case if now is None else self.limit}"
        if SIGNS[self.sign](now, limit):
            return None
        return f"{self.bench} {self.case} has the ratio {now:g} and not one {self.sign} {limit:g}"


CLAIMS = (
    Claim("README.md", "`outbox_emit` takes about as long as a plain INSERT", "emit", "emit, prepared", ">", 0.9),
    Claim("README.md", "The cost of repeated status queries does not depend on the backlog", "status", "5,000,000 pending", "<=", 1.5),
)


def newest(lines, bench, case):
    ratios = [line["ratio"] for line in lines if (line["bench"], line["case"]) == (bench, case) and line["ratio"] is not None]
    return ratios[-1] if ratios else None


def problems(lines, text):
    """(file, what is wrong); `text` gives that of a file."""
    for claim in CLAIMS:
        if claim.sentence not in text(claim.file):
            yield claim.file, f"it lacks the sentence of bench/lib/claims.py: {claim.sentence}"
        elif problem := claim.problem(lines):
            yield claim.file, f"{claim.sentence!r}, but {problem}"
