"""The pictures of docs/pictures are drawn from the sources beside them, for light and for dark pages, and a page shows each."""
import hashlib
import re

from .tree import Problem

RULES = {
    'stale': 'a picture is not drawn from its source as it is',
    'unused': 'no page shows a picture in both forms',
}
FOLDER = 'docs/pictures'
THEMES = ('light', 'dark')


def mark(source):
    """The comment in a picture that says of which source it is."""
    return f'<!-- drawn by control/pictures, source {hashlib.sha256(source.encode()).hexdigest()[:16]} -->'


def check(tree):
    sources = [name for name in tree.files if name.startswith(FOLDER + '/') and name.endswith('.dot')]
    wanted = {name.removesuffix('.dot') + f'-{theme}.svg': name for name in sources for theme in THEMES}
    for name, source in wanted.items():
        if name not in tree.known or mark(tree.text(source)) not in tree.text(name):
            yield Problem(source, 0, 'stale', f'{name} is not drawn from it; run control/pictures')
    for name in tree.files:
        if name.startswith(FOLDER + '/') and name.endswith('.svg') and name not in wanted:
            yield Problem(name, 0, 'stale', 'it has no source; run control/pictures')
    shown = set()
    for page in tree.files:
        if page.endswith('.md'):
            shown.update(re.findall(r'pictures/([\w-]+\.svg)', tree.text(page)))
    for name, source in wanted.items():
        if name.split('/')[-1] not in shown:
            yield Problem(source, 0, 'unused', f'no page shows {name}')
