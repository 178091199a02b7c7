"""The errors that the sources raise with an SQLSTATE: Throw(ERRCODE_..., message, detail, hint) and ereport(ERROR, ...) in C++, and
RAISE condition USING MESSAGE = ... in SQL. What is filled in when an error is raised is an ellipsis here."""

import collections
import re

Error = collections.namedtuple("Error", "message hint")
HOLE = "…"
COMPOSED = "a message that names the object or the value, and what is wrong with it"
_SOURCES = ("extension/", "worker/publisher/")
# Errors of the server or of this code, and not of a caller.
_INTERNAL = {"ERRCODE_INTERNAL_ERROR", "ERRCODE_OUT_OF_MEMORY", "ERRCODE_DATA_CORRUPTED"}


# Those that the server does not have, as its list has its own.
_OWN = [("57PB1", "ERRCODE_POSTBOX_PAUSED", "postbox_paused")]


class Unread(Exception):
    """A place that raises an error in a way that is not known here."""


def raised(tree, codes):
    """SQLSTATE and its name -> the errors that have it. `tree`: file -> text; `codes`: the text of the server's errcodes.txt."""
    known = re.findall(r"^(\w{5}) +E +(ERRCODE_\w+)(?: +(\w+))?$", codes, re.MULTILINE) + _OWN
    by_macro = {macro: state for state, macro, _ in known}
    names = {state: name for state, _, name in reversed(known) if name}
    by_condition = {name: state for state, _, name in reversed(known)}  # of two with one name PL/pgSQL takes the first
    found = collections.defaultdict(set)
    for name, text in sorted(tree.items()):
        if name.startswith(_SOURCES) and name.endswith((".cc", ".h")) and not name.endswith("_test.cc"):
            for macro, error in _of_cpp(name, text):
                if macro not in _INTERNAL:
                    found[by_macro[macro]].add(error)
        elif name.startswith("sql/") and name.endswith(".sql"):
            for condition, error in _of_sql(text):
                found[by_condition[condition]].add(error)
    return {(state, names[state]): _listed(errors) for state, errors in sorted(found.items())}


def _listed(errors):
    """In the order of their texts. A message of which nothing is known stands for one that is made where the error is raised."""
    known = {error if re.search(r"\w+\W+\w+", error.message) else Error(COMPOSED, error.hint) for error in errors}
    if len(known) > 1:
        known.discard(Error(COMPOSED, ""))
    return sorted(known, key=lambda error: (error.message.strip(f'"{HOLE} '), error.hint, error.message))


# Throw() and what calls it. A function whose name begins with Refuse has a message that only names the object: its next argument is the cause.
_THROW = re.compile(r"\b(?:Throw|PostgresError|Refuse\w+)\(\s*(?:[\w.]+,\s*)?(ERRCODE_\w+),")
_REPORT = re.compile(r"\bereport\((?:ERROR|FATAL|elevel),\s*\(?errcode\((ERRCODE_\w+)\),")
# A code that is defined or compared, or that of a report that is no error.
_READ = re.compile(r"(?:#define\s+|[=!]=\s*|case\s+|\b(?:WARNING\w*|NOTICE|LOG|level),\s*\(?errcode\()(ERRCODE_\w+)")
# One that is raised with a message from elsewhere.
_KEPT = re.compile(r"\bsqlstate = (ERRCODE_\w+)")


def _of_cpp(name, text):
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    read = {match.start(1) for match in _READ.finditer(text)}
    for match in _KEPT.finditer(text):
        read.add(match.start(1))
        yield match[1], Error(HOLE, "")
    for match in _THROW.finditer(text):
        read.add(match.start(1))
        arguments = _arguments(text, match.end())
        yield match[1], Error(_said(arguments[0]), _said(arguments[2]) if len(arguments) > 2 else "")
    for match in _REPORT.finditer(text):
        read.add(match.start(1))
        calls = [re.fullmatch(r"\s*(err\w+)\((.*)\)\)?\s*", part, re.DOTALL) for part in _arguments(text, match.end())]
        said = {call[1]: _printed(call[2]) for call in calls if call}
        yield match[1], Error(said.get("errmsg", HOLE), said.get("errhint", ""))
    for match in re.finditer(r"\bERRCODE_(?!TO_CATEGORY)\w+", text):
        if match.start() not in read:
            raise Unread(f"{name}: {match[0]} stands in no form that control/manual/errors.py reads: {text[match.start() - 60:match.end()].split()}")


def _arguments(text, start):
    """The arguments of a call up to its closing parenthesis."""
    return _split(text, start, ",")


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _split(text, start, separator):
    """The pieces of code between separators that stand in no brackets and no literal, up to the bracket that closes or to the end."""
    found, depth, begin, position = [], 0, start, start
    while position < len(text):
        sign = text[position]
        if sign == '"':
            position = _STRING.match(text, position).end()
            continue
        if sign in ")}]" and depth == 0:
            break
        if sign == separator and depth == 0:
            found.append(text[begin:position])
            begin = position + 1
        depth += (sign in "({[") - (sign in ")}]")
        position += 1
    return [*found, text[begin:position]]


_LITERALS = r'(?:"(?:[^"\\]|\\.)*"\s*)+'


def _said(expression):
    """What a sum of texts says."""
    said = ""
    for term in _split(expression, 0, "+"):
        whole = re.fullmatch(rf"\s*(?:std::string\()?\s*({_LITERALS})\)?\s*", term, re.DOTALL)
        said += _literal(whole[1]) if whole else f'"{HOLE}"' if re.match(r"\s*Quoted\(", term) else HOLE
    return _closed(said)


def _printed(arguments):
    """What errmsg and the like say: a format, with values that are literals themselves put in."""
    form = re.match(rf"\s*({_LITERALS})", arguments)
    return _closed(re.sub(r"%[-+0-9.*]*(?:z|l|ll)?[a-zA-Z]", HOLE, _literal(form[1]))) if form else HOLE


def _literal(text):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"').replace("\\\\", "\\").replace("\\n", " ")


def _of_sql(text):
    text = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    for condition, body in re.findall(r"\bRAISE (?!WARNING|NOTICE|INFO|LOG|DEBUG)(\w+) USING\b((?:'(?:[^']|'')*'|[^';])*);", text):
        options = dict(re.findall(r"\b(MESSAGE|HINT) = ((?:'(?:[^']|'')*'|(?!\b(?:DETAIL|HINT|MESSAGE) =)[^'])*)", body))
        yield condition, Error(_of_options(options["MESSAGE"]), _of_options(options.get("HINT", "")))


def _of_options(expression):
    """Of `'text'` and `format('text %s', ...)` the text; of anything else that there is one."""
    literal = re.match(r"\s*(?:(?:pg_catalog\.)?format\()?'((?:[^']|''|'\s*\n\s*')*)'", expression)
    if not literal:
        return HOLE if expression.strip(" ,\n") else ""
    return _closed(re.sub(r"%(?:\d+\$)?[sLI]", HOLE, re.sub(r"'\s*\n\s*'", "", literal[1]).replace("''", "'")))


def _closed(text):
    return re.sub(rf"{HOLE}(?=[a-z])", f"{HOLE} ", re.sub(rf"{HOLE}(?:\s*{HOLE})+", HOLE, text))
