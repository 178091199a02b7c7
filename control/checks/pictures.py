"""The pictures of docs/pictures are drawn from the sources beside them, for light and for dark pages, and a page shows each."""
import hashlib
import re

from .tree import Problem

RULES = {
    'stale': 'a picture is not what control/pictures draws of its source',
    'unused': 'no page shows a picture in both forms',
}
FOLDER = 'docs/pictures'
SCRIPT = 'control/pictures'
THEMES = ('light', 'dark')


_MARK = re.compile(r'<!-- drawn by control/pictures, \w+ -->\n')


def marked(script, source, svg):
    """A picture with a comment that holds for this script, this source and this picture alone."""
    key = hashlib.sha256('\0'.join((script, source, svg)).encode()).hexdigest()[:16]
    return svg.replace('<svg ', f'<!-- drawn by control/pictures, {key} -->\n<svg ', 1)


def check(tree):
    sources = [name for name in tree.files if name.startswith(FOLDER + '/') and name.endswith('.dot')]
    wanted = {name.removesuffix('.dot') + f'-{theme}.svg': name for name in sources for theme in THEMES}
    for name, source in wanted.items():
        drawn = tree.text(name) if name in tree.known else ''
        if not drawn or drawn != marked(tree.text(SCRIPT), tree.text(source), _MARK.sub('', drawn)):
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
