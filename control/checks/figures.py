"""The tables and plots of docs/performance.md are what bench/report writes from bench/ledger.jsonl: no figure is typed."""
import sys
from pathlib import Path

from .tree import Problem

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'bench/lib'))
import claims  # pylint: disable=wrong-import-position
import ledger  # pylint: disable=wrong-import-position
import pages  # pylint: disable=wrong-import-position

RULES = {
    'ledger': 'a line of the ledger cannot be read',
    'stale': 'a file is not what the ledger gives',
    'claim': 'a sentence says of speed what the ledger does not bear out',
}


def check(tree):
    try:
        lines = ledger.read(tree.text(ledger.LEDGER))
        files = pages.rendered(lines, tree.text(pages.PAGE))
    except (KeyError, TypeError, ValueError) as problem:
        yield Problem(ledger.LEDGER, 0, 'ledger', f'it makes no page: {problem!r}')
        return
    for name, text in files.items():
        if name not in tree.known or tree.text(name) != text:
            yield Problem(name, 0, 'stale', f'it is not what {ledger.LEDGER} gives; run bench/report')
    documentation = [name for name in tree.files if name.endswith('.md') and (name.startswith('docs/') or '/' not in name)]
    for name, problem in claims.problems(lines, tree.text, documentation):
        yield Problem(name, 0, 'claim', problem)
    for name in tree.files:
        if name.startswith(pages.FOLDER + '/') and name not in files:
            yield Problem(name, 0, 'stale', f'{ledger.LEDGER} does not give it; run bench/report')
