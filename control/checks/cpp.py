"""Reads C++ well enough for the checks: comments, includes, and where classes and functions begin and end.

It is a scanner of braces, not a compiler. Comments, literals and preprocessor directives are blanked first, so that
every position keeps its line. What stands before a `{` then says what it opens. Braces that do not
match raise an error: what cannot be read is not passed over.
"""
import functools
import re
from dataclasses import dataclass, field

from .tree import line_of

SUFFIXES = ('.cc', '.h')

# The first character stands alone, and what must not come before it after it: a search goes from one such character to the next.
_LEXICAL = re.compile(r'''[/"'0-9uULR](?:
    (?<=/)(?P<comment>/(?:\\\n|[^\n])*|\*.*?\*/)
  | (?<!\w.)(?P<raw>(?:(?<=R)|(?<=u)8?R|(?<=[UL])R)"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
  | (?<=")(?P<string>(?:\\.|[^"\\\n])*")
  | (?<=[0-9])(?<![\w.].)(?P<number>(?:'?[\w.])*)        # before characters: 1'000 is a number
  | (?<=')(?P<character>(?:\\.|[^'\\\n])+')
)''', re.S | re.X)
_INCLUDE = re.compile(r'''^[ \t]*(?:\#|%:)(?:[ \t]|\\\n)*(?:include_next|include|import)\b(?:[ \t]|\\\n)*
                          (<[^>\n]*>|"[^"\n]*"|[^\n]*)''', re.M | re.X)
# Behind a field or a function: the mutex that guards it. It is no function's name.
_ANNOTATION = re.compile(r'\bABSL_[A-Z_]+\b(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?')
_DIRECTIVE = re.compile(r'^[ \t]*(?:#|%:)(?:\\\n|[^\n])*', re.M)
_BRACE = re.compile(r'[{}]')
_TOKEN = re.compile(r'operator[ \t]*(?:\(\)|\[\]|[^\w\s("]+)|""|[A-Za-z_]\w*|::|->|\S')


def _blank(text):
    """`text` as spaces; its newlines stay."""
    return '\n'.join(' ' * len(line) for line in text.split('\n'))


@dataclass
class Source:
    """A file: its code without comments, its code without literals as well, and its comments."""
    with_literals: str
    code: str
    comments: list  # (position, text)


@functools.lru_cache(maxsize=None)
def split(text):
    """Takes comments and literals out of `text`; every position stays where it was."""
    comments, with_literals, code, end = [], [], [], 0
    for match in _LEXICAL.finditer(text):
        kind = match.lastgroup
        if kind == 'number':
            continue
        between, blank = text[end:match.start()], _blank(match[0])
        end = match.end()
        with_literals += (between, blank if kind == 'comment' else match[0])
        code += (between, '""' + blank[2:] if kind in ('string', 'raw') else blank)
        if kind == 'comment':
            comments.append((match.start(), match[0]))
    with_literals.append(text[end:])
    code.append(text[end:])
    return Source(''.join(with_literals), ''.join(code), comments)


@dataclass(frozen=True)
class Include:
    line: int
    name: str
    quoted: bool
    literal: bool  # False: the name comes from a macro


@functools.lru_cache(maxsize=None)
def includes(text):
    """Every #include of a file, whatever #if it stands in."""
    code = split(text).with_literals
    found = []
    for match in _INCLUDE.finditer(code):
        operand = match[1].strip()
        literal = operand[:1] in ('<', '"') and len(operand) > 2
        name = operand[1:-1].strip() if literal else operand
        found.append(Include(line_of(code, match.start(1)), name, operand.startswith('"'), literal))
    return found


@dataclass
class Block:
    """Something with a name and braces. `parents` are the kinds of what it stands in."""
    kind: str  # namespace, class, function, data, inner, macro
    name: str
    line: int
    end: int = 0
    parents: tuple = ()
    # Of a class that is called one, and no struct, union or enum: a struct is a table of data.
    is_class: bool = False
    fields: int = 0   # but constants of the class
    methods: int = 0  # but constructors, destructors and what is deleted

    @property
    def length(self):
        return self.end - self.line + 1

    @property
    def at_namespace_level(self):
        return all(kind == 'namespace' for kind in self.parents)


@functools.lru_cache(maxsize=None)
def blocks(text):
    """The namespaces, classes and functions of a file, and its macros of more than one line."""
    code = split(text).code
    found = list(_macros(code))
    code = _DIRECTIVE.sub(lambda match: _blank(match[0]), _one_branch(code))
    code = _ANNOTATION.sub(lambda match: _blank(match[0]), code)
    scanner = _Scanner(code)
    match = _TOKEN.search(code)
    while match:
        scanner.take(match[0], match.start())
        inside = match[0] == '{' and scanner.scope.block.kind not in ('namespace', 'class')
        match = _TOKEN.search(code, _closing(code, match.end()) if inside else match.end())
    if scanner.open:
        raise ValueError(f'line {scanner.open[-1].block.line}: a brace is not closed')
    return found + scanner.found


def _closing(code, position):
    """Where the brace stands that closes the one before `position`: nothing in a function or in data has a name. The end, if none does."""
    depth = 1
    for match in _BRACE.finditer(code, position):
        depth += 1 if match[0] == '{' else -1
        if depth == 0:
            return match.start()
    return len(code)


def _macros(code):
    for match in _DIRECTIVE.finditer(code):
        define = re.match(r'\s*#\s*define\s+(\w+)', match[0])
        if define and '\n' in match[0]:
            yield Block('macro', define[1], line_of(code, match.start(0)), line_of(code, match.end()))


def _one_branch(code):
    """Leaves one branch of an #if whose branches do not each close the braces that they open."""
    pieces, groups, blanked = [], [], []
    for match in _DIRECTIVE.finditer(code):
        word = re.match(r'\s*(?:#|%:)\s*(\w*)', match[0])[1]
        if word in ('if', 'ifdef', 'ifndef'):
            groups.append([match.end()])
        elif word in ('else', 'elif', 'elifdef', 'elifndef', 'endif') and groups:
            groups[-1].append(match.start())
            if word != 'endif':
                groups[-1].append(match.end())
                continue
            bounds = groups.pop()
            pieces = list(zip(bounds[::2], bounds[1::2]))
            if any(code[a:b].count('{') != code[a:b].count('}') for a, b in pieces):
                blanked += pieces[1:]
    for start, end in blanked:
        code = code[:start] + re.sub(r'[{}]', ' ', code[start:end]) + code[end:]
    return code


@dataclass
class _Open:
    """A brace that is open, and what came before it in its statement."""
    block: Block
    resumes: bool  # after its end the statement before it goes on
    head: list = field(default_factory=list)  # tokens of the statement that is being read inside
    start: int = 0
    parentheses: int = 0


class _Scanner:
    def __init__(self, code):
        self.code = code
        self.found = []
        self.open = []
        self.outermost = _Open(Block('namespace', '', 1), False)

    @property
    def scope(self):
        return self.open[-1] if self.open else self.outermost

    def take(self, token, position):
        if token == '{':
            self._enter(position)
        elif token == '}':
            self._leave(position)
        elif token == ';' and self.scope.parentheses == 0:
            self._alias()
            if self.scope.block.kind == 'class':
                _count_member(self.scope.block, self.scope.head)
            self.scope.head = []
        elif token == ':' and self.scope.head[-1:] in (['public'], ['private'], ['protected']) and len(self.scope.head) == 1:
            self.scope.head = []
        else:
            self._append(token, position)

    def _append(self, token, position):
        scope = self.scope
        if not scope.head:
            scope.start = position
            scope.parentheses = 0
        scope.parentheses += (token in '([') - (token in ')]')
        scope.head.append(token)

    def _alias(self):
        """`using Name = ...;`, which gives a name as a class does."""
        head = _without_template(self.scope.head)
        if head[:1] == ['using'] and '=' in head and self.scope.block.kind in ('namespace', 'class'):
            line = line_of(self.code, self.scope.start)
            self.found.append(Block('alias', head[1], line, line, self._parents()))

    def _parents(self):
        return tuple(entry.block.kind for entry in self.open)

    def _enter(self, position):
        scope = self.scope
        if scope.block.kind not in ('namespace', 'class') or scope.parentheses > 0:
            kind, name = 'inner', ''
        else:
            kind, name = _classify(scope.head)
        line = line_of(self.code, scope.start if scope.head else position)
        is_class = kind == 'class' and _without_template(scope.head)[:1] == ['class']
        block = Block(kind, name, line, 0, self._parents(), is_class)
        self.open.append(_Open(block, resumes=kind in ('inner', 'data', 'class')))

    def _leave(self, position):
        if not self.open:
            raise ValueError(f'line {line_of(self.code, position)}: a brace closes nothing')
        closed = self.open.pop()
        closed.block.end = line_of(self.code, position)
        if closed.block.kind not in ('inner', 'data'):
            self.found.append(closed.block)
        if closed.block.kind == 'function' and self.scope.block.kind == 'class':
            _count_method(self.scope.block, closed.block.name)
        if closed.resumes and closed.block.kind != 'class':
            self._append('}', position)
        elif closed.block.kind == 'class':
            self.scope.head = ['}']
            self.scope.start = position
        else:
            self.scope.head = []


def _count_method(block, name):
    block.methods += name != block.name and not name.startswith('~')


def _count_member(block, head):
    """A member of a class that ends with a semicolon."""
    tokens = _without_attributes(_without_template(head))
    if not tokens or tokens == ['}'] or tokens[0] in ('using', 'typedef', 'friend', 'static_assert', 'enum', 'class', 'struct', 'union'):
        return
    words = [word for word, _ in _outside_brackets(tokens)]
    value = words.index('=') if '=' in words else len(words)
    if '(' in words[:value] or any(word.startswith('operator') for word in words):
        if words[-2:] != ['=', 'delete'] and '(' in words:
            at = words.index('(')
            _count_method(block, ('~' if words[at - 2:at - 1] == ['~'] else '') + words[at - 1])
    elif 'static' not in words and 'constexpr' not in words:
        block.fields += 1 + words.count(',')


def _matching(tokens, at, opening, closing):
    """The index after the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(tokens)):
        depth += (tokens[index] == opening) - (tokens[index] == closing)
        if depth == 0:
            return index + 1
    return len(tokens)


def _without_template(tokens):
    while tokens[:1] == ['template'] and tokens[1:2] == ['<']:
        tokens = tokens[_matching(tokens, 1, '<', '>'):]
    return tokens


def _without_attributes(tokens):
    """Drops [[...]], alignas(...), __attribute__((...)) and explicit(...)."""
    kept, index = [], 0
    while index < len(tokens):
        if tokens[index] == '[' and tokens[index + 1:index + 2] == ['[']:
            index = _matching(tokens, index, '[', ']')
        elif tokens[index] in ('alignas', '__attribute__', '__declspec', 'explicit', 'decltype', 'requires') and \
                tokens[index + 1:index + 2] == ['(']:
            index = _matching(tokens, index + 1, '(', ')')
            kept.append('type')
        else:
            kept.append(tokens[index])
            index += 1
    return kept


def _outside_brackets(tokens):
    """The tokens that stand in no <...>, with an opening parenthesis for each (...), and their indices."""
    result, index, angle = [], 0, 0
    while index < len(tokens):
        token = tokens[index]
        if token in '([' and angle == 0:
            result.append((token, index))
            index = _matching(tokens, index, token, ')' if token == '(' else ']')
            continue
        angle += (token == '<') - (token == '>' and angle > 0)
        if angle == 0 and token != '>':
            result.append((token, index))
        index += 1
    return result


def _classify(head):
    """What a `{` after the tokens `head` opens, in a namespace or a class: (kind, name)."""
    tokens = _without_attributes(_without_template(head))
    if 'namespace' in tokens[:2]:
        return 'namespace', ''.join(tokens[tokens.index('namespace') + 1:])
    if tokens == ['extern', '""']:
        return 'namespace', ''
    top = _outside_brackets(tokens)
    words = [token for token, _ in top]
    if '=' in words:
        at = words.index('=')
        return ('function', words[at - 1]) if words[at + 1:at + 2] == ['['] else ('data', '')
    if '(' in words:
        return _function(tokens, top, words)
    for key in ('class', 'struct', 'union', 'enum'):
        if key in words:
            return 'class', _class_name(tokens, words, key)
    return 'data', ''


def _class_name(tokens, words, key):
    """The name in the head of a class, '' if it has none; with `<` at its end for a specialisation."""
    name = words[words.index(key) + 1:]
    if ':' in name:
        name = name[:name.index(':')]
    name = [token for token in name if token not in ('class', 'struct', 'final', 'type')]
    while len(name) > 1 and name[-2] != '::':
        name = name[1:] if name[0].isidentifier() and name[1:2] != ['::'] else name[2:]
    before_bases = tokens[:tokens.index(':')] if ':' in tokens else tokens
    return ''.join(name) + ('<' if '<' in before_bases else '')


def _function(tokens, top, words):
    """A function, or the brace of a member in a constructor's list of initialisers."""
    first = words.index('(')
    if ':' in words[first:] and re.fullmatch(r'[A-Za-z_]\w*|>', tokens[-1]):
        return 'data', ''
    name, index = top[first - 1] if first else ('', 0)
    macro = name.isupper() and len(name) > 1 and index == 0 and ':' not in words
    if macro and words.count('(') == 1:
        return 'function', _spelled(tokens)
    if macro:  # and a function after it
        return _classify(tokens[_matching(tokens, top[first][1], '(', ')'):])
    start = first - 1
    while start >= 1 and (words[start - 1] in ('::', '~', 'operator') or words[start] == '::'):
        start -= 1
    spelled = ' '.join(words[start:first]) if 'operator' in words[start:first] else ''.join(words[start:first])
    return 'function', spelled


def _spelled(tokens):
    return ''.join(tokens).replace(',', ', ')
