"""What the files of the console's page never do: make markup or code of a text, or have it within markup, or name an address of another server.

What the page shows is hostile, and the policy that its server sends (worker/cli/console/console_server.cc) stops such code in browsers.
Its addresses are relative, because it may be served under a prefix.
"""
import re

from .tree import Problem, line_of

RULES = {
    'markup': 'a text becomes markup',
    'code': 'a text becomes code',
    'inline': 'a script or a style is within markup',
    'address': 'an address is not relative',
}
FOLDER = 'worker/cli/console/page/'
_MARKUP = r'\b(?:innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|createContextualFragment|parseFromString|setHTMLUnsafe|srcdoc)\b|\bdocument\.write'
_CODE = r'\beval\s*\(|\bFunction\s*\(|\bset(?:Timeout|Interval)\s*\(\s*["\'`]|\bjavascript:'
_INLINE = r'<style\b|<script\b(?![^>]*\ssrc=)|\bon[a-z]+\s*=\s*["\']'
_INLINE_OF_HTML = rf'{_INLINE}|\sstyle\s*=|\son\w+\s*='
# The name of a format of XML is no address.
_ADDRESS = (r'\b(?:https?|wss?|ftp):(?!//www\.w3\.org/)|(?<=["\'`(=])//\w|(?<=["\'`])/(?:api|page|lib)\b|\b(?:href|src|action)\s*=\s*["\']?/|'
            r'\burl\(\s*["\']?/|@import\b')
_PATTERNS = {'markup': _MARKUP, 'code': _CODE, 'inline': _INLINE, 'address': _ADDRESS}


def check(tree):
    for name in tree.files:
        if name.startswith(FOLDER) and name.endswith(('.html', '.js', '.css', '.svg')):
            text = tree.text(name) or ''
            for rule, pattern in _PATTERNS.items():
                if rule == 'inline' and name.endswith(('.html', '.svg')):
                    pattern = _INLINE_OF_HTML
                for match in re.finditer(pattern, text):
                    yield Problem(name, line_of(text, match.start()), rule, f'{RULES[rule]}: {match[0].strip()}')
