"""Sentences of the documentation that say how fast something is, and the figures of the ledger that bear them out.

A claim holds while the newest figure, by its ratio, is on the right side of a number or of another figure. Where a sentence goes, its
claim goes too, and a sentence that compares speeds has a claim."""

import dataclasses
import operator
import re

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


# What says how fast something is, outside of the pages of figures.
SPEED = re.compile(r"\b(?:faster than|slower than|quicker|(?:as|twice as) fast|times as (?:fast|much|many)|times (?:faster|slower)|a fraction of|(?:less|half the) time|%\s*(?:faster|slower))\b|"
                   r"\d[\d,.]*(?: million|k)? (?:events|rows|messages|transactions)(?:/s| a second| per second)")
PAGES_OF_FIGURES = {"docs/performance.md", "docs/reliability.md"}


def unclaimed(name, text):
    """The sentences of a page that say how fast something is, and that no claim bears out."""
    prose = " ".join(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split())
    for claim in CLAIMS:
        if claim.file == name:
            prose = prose.replace(claim.sentence, "")
    yield from (sentence for sentence in re.split(r"(?<=[.:;|]) ", prose) if SPEED.search(sentence))


def newest(lines, bench, case):
    ratios = [line["ratio"] for line in lines if (line["bench"], line["case"]) == (bench, case) and line["ratio"] is not None]
    return ratios[-1] if ratios else None


def problems(lines, text, pages=()):
    """(file, what is wrong); `text` gives that of a file; `pages`: those of the documentation."""
    for name in sorted(set(pages) - PAGES_OF_FIGURES):
        for sentence in unclaimed(name, text(name)):
            yield name, f"no claim of bench/lib/claims.py bears out: {sentence}"
    for claim in CLAIMS:
        if claim.sentence not in " ".join(text(claim.file).split()):
            yield claim.file, f"it lacks the sentence of bench/lib/claims.py: {claim.sentence}"
        elif problem := claim.problem(lines):
            yield claim.file, f"{claim.sentence!r}, but {problem}"
