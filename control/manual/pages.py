"""The pages of docs/reference. What a page says of an object is what its COMMENT says, with types and defaults from the catalogs."""

import re
import textwrap

from . import comment as comments
from . import texts
from .errors import HOLE
from .subjects import SUBJECTS

FOLDER = "docs/reference"
NOTE = "<!-- made by control/reference; do not edit -->"
NEEDED = ("Rights", "Errors", "Since")  # lines of each function
# SQLSTATEs that the server raises where it does the work of a function: arithmetic, transactions, names and files.
OF_SERVER = ("22012", "25006", "3F000", "42P07", "58P01")


class Incomplete(Exception):
    """What the sources do not say."""


class Reference:
    """`catalog`: see catalog.py; `errors`: see errors.py; `attributes` and `commands`: see texts.py."""

    def __init__(self, catalog, errors, attributes, commands):
        self._catalog = catalog
        self._errors = errors
        self._attributes = attributes
        self._commands = commands
        self._missing = []
        self._functions = {}
        for function in catalog.functions:
            if not (function["comment"] or "").lstrip().startswith(comments.INTERNAL.strip()):
                self._functions.setdefault(function["name"], []).append(function)
        self._places = {name: f"{page}#{name}" for page, subject in SUBJECTS.items() for name in subject.objects}
        self._setting_places = {setting["name"]: f"settings.md#{setting['name'].replace('.', '')}" for setting in catalog.settings}
        self._states = {state for state, _ in errors}

    def pages(self):
        """File -> text."""
        self._complain_of_places()
        found = {page: self._subject(page, subject) for page, subject in SUBJECTS.items()}
        found["settings.md"] = self._settings()
        found["errors.md"] = self._error_page()
        found["attributes.md"] = self._attribute_page()
        found["command-line.md"] = self._command_page()
        found["README.md"] = self._contents(found)
        if self._missing:
            raise Incomplete("\n".join(self._missing))
        return {f"{FOLDER}/{name}": text for name, text in sorted(found.items())}

    def examples(self):
        """(function, statements) of each example."""
        for name in sorted(self._functions):
            for _, parsed in self._described_forms(name):
                if "Example" in parsed.parts:
                    yield name, parsed.parts["Example"]

    def _complain(self, name, problem):
        self._missing.append(f"{name}: {problem}")

    def _complain_of_places(self):
        for member in self._catalog.others:
            self._complain(member, "it belongs to the extension, and control/manual/catalog.py does not read objects of its kind")
        relations = {name for name, row in self._catalog.relations.items() if not (row["comment"] or "").startswith(comments.INTERNAL)}
        types = {name for name, row in self._catalog.types.items() if not (row["comment"] or "").startswith(comments.INTERNAL)}
        public = set(self._functions) | relations | types
        for name in sorted(public - set(self._places)):
            self._complain(name, f"control/manual/subjects.py has no page for it; if it is not for users, its COMMENT begins with {comments.INTERNAL!r}")
        for name in sorted(set(self._places) - public):
            self._complain(name, "control/manual/subjects.py names it, and it does not exist or is internal")

    def _subject(self, page, subject):
        parts = [f"# {subject.title}", "", self._prose(subject.about, page, "")]
        for name in subject.objects:
            if name in self._functions:
                parts += self._function(page, name)
            elif name in self._catalog.relations:
                parts += self._relation(page, self._catalog.relations[name])
            elif name in self._catalog.types:
                parts += self._type(page, self._catalog.types[name])
        return self._page(parts)

    # Functions --------------------------------------------------------------------------------------------------------------

    def _described_forms(self, name):
        """(forms, their COMMENT) of a function: forms that differ in types alone are described once."""
        described = [[form] for form in self._functions[name] if not (form["comment"] or "").startswith(comments.FORM)]
        for form in self._functions[name]:
            if (form["comment"] or "").startswith(comments.FORM):
                fitting = [forms for forms in described if _shape(forms[0]) == _shape(form)]
                if len(fitting) == 1:
                    fitting[0].append(form)
                else:
                    self._complain(form["form"], "its COMMENT names another form, and not one of them has its result and the names of its arguments")
        for forms in described:
            yield forms, self._parsed(name, forms[0]["comment"] or "", [argument["name"] for argument in forms[0]["arguments"]])

    def _function(self, page, name):
        parts = ["", f"## {name}"]
        for forms, parsed in self._described_forms(name):
            arguments = _union(forms)
            for problem in comments.problems(parsed, [argument["name"] for argument in arguments], NEEDED):
                self._complain(forms[0]["form"], problem)
            parts += ["", "```text", *_signature(name, arguments, forms[0]["returns"]), "```"]
            parts += self._paragraphs(parsed, page, name)
            if arguments:
                parts.append("")
            parts += [self._item(f"`{argument['name']}`", parsed.arguments.get(argument["name"], ""), page, name) for argument in arguments]
            parts += self._lines(parsed, page, name)
        return parts

    def _parsed(self, name, text, arguments=()):
        try:
            return comments.parse(text, arguments)
        except comments.BadComment as problem:
            self._complain(name, f"its COMMENT cannot be read: {problem}")
            return comments.Comment([], {}, {})

    def _paragraphs(self, parsed, page, name):
        return [line for paragraph in parsed.description if paragraph for line in ("", self._prose(paragraph, page, name))]

    def _lines(self, parsed, page, name):
        found = []
        for part in comments.PARTS:
            if part not in parsed.parts:
                continue
            if part == "Example":
                found += ["", "```sql fragment", parsed.parts[part], "```"]
            else:
                text = self._marked(parsed.parts[part], page, name)
                found += ["", _wrapped(f"**{part}**: {self._states_linked(text, name) if part == 'Errors' else text}", "")]
        return found

    # Views, tables and types ------------------------------------------------------------------------------------------------

    def _relation(self, page, relation):
        name = relation["name"]
        kind = {"v": "View", "r": "Table"}[relation["kind"]]
        return self._described(page, name, f"{kind} `postbox.{name}`.", relation["comment"], relation["columns"])

    def _type(self, page, kind):
        name = kind["name"]
        what = f"Type `postbox.{name}`."
        if kind["labels"]:
            what = f"Enumeration `postbox.{name}`: {', '.join(f'`{label}`' for label in kind['labels'])}."
        elif kind["base"]:
            what = f"Domain `postbox.{name}` over {kind['base']}."
        return self._described(page, name, what, kind["comment"], kind["columns"] or ())

    def _described(self, page, name, what, text, columns):
        parsed = self._parsed(name, text or "")
        if not any(parsed.description):
            self._complain(name, "it has no COMMENT")
        parts = ["", f"## {name}", "", what, *self._paragraphs(parsed, page, name)]
        if columns:
            parts.append("")
        for column in columns:
            if not column["comment"]:
                self._complain(f"{name}.{column['name']}", "it has no COMMENT")
            parts.append(self._item(f"`{column['name']}` ({column['type']})", column["comment"] or "", page, name))
        return parts + self._lines(parsed, page, name)

    # Settings, errors, attributes, commands ---------------------------------------------------------------------------------

    def _settings(self):
        parts = ["# Settings", "", *texts.SETTINGS, "", "| setting | default | range | context |", "|---|---|---|---|"]
        for setting in self._catalog.settings:
            name = setting["name"]
            parts.append(f"| [`{name}`](#{name.replace('.', '')}) | {texts.default(setting)} | {texts.span(setting)} | {setting['context']} |")
        for setting in self._catalog.settings:
            said = f"Default {texts.default(setting)}; {texts.span(setting) + '; ' if texts.span(setting) else ''}context `{setting['context']}`."
            parts += ["", f"## {setting['name']}", "", self._prose(setting["short"], "settings.md", setting["name"]), "", said]
            if setting["extra"]:
                parts += ["", self._prose(setting["extra"], "settings.md", setting["name"])]
        return self._page(parts)

    def _error_page(self):
        parts = ["# Errors", "", *texts.ERRORS]
        for (state, name), errors in self._errors.items():
            parts += ["", f"## {state}", "", f"`{name}`", ""]
            for error in errors:
                hint = f" Hint: {_escaped(error.hint)}" if error.hint.strip(f"{HOLE}. ") else ""
                parts.append(_wrapped(f"- {_escaped(error.message.rstrip('.'))}.{hint}", "  "))
        return self._page(parts)

    def _attribute_page(self):
        parts = ["# Attributes of a message", "", *texts.ATTRIBUTES]
        for title, attributes in self._attributes:
            parts += ["", f"## {title}", ""]
            parts += [self._item(f"`{name}`", text, "attributes.md", "") for name, text in attributes]
        return self._page(parts)

    def _command_page(self):
        parts = ["# Command line", "", *texts.COMMANDS]
        for command, text, sections in self._commands:
            parts += ["", f"## {command}", "", "```text", *(line.rstrip() for line in text.rstrip().splitlines()), "```"]
            for title, lines in sections:
                parts += ["", f"**{title}**", "", *(_wrapped(line, "  " if line.startswith("- ") else "") for line in lines)]
        return self._page(parts)

    def _contents(self, found):
        parts = ["# Reference", "", *texts.CONTENTS, ""]
        for page in [*SUBJECTS, "settings.md", "errors.md", "attributes.md", "command-line.md"]:
            title = found[page].split("\n", 3)[2].removeprefix("# ")
            objects = SUBJECTS[page].objects if page in SUBJECTS else ()
            names = ", ".join(f"[`{name}`]({page}#{name})" for name in objects)
            parts.append(_wrapped(f"- [{title}]({page}){': ' + names if names else ''}", "  "))
        return self._page(parts)

    # Text -------------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _page(parts):
        return "\n".join([NOTE, "", *parts]) + "\n"

    def _item(self, head, text, page, name):
        return _wrapped(f"- {head}: {self._marked(text, page, name)}", "  ")

    def _prose(self, text, page, name):
        return _wrapped(self._marked(text, page, name), "")

    def _marked(self, text, page, here):
        """Plain text, with code in backticks, as Markdown that shows it. Names of other objects and of settings become links."""
        def link(match):
            place = self._setting_places.get(f"postbox.{match[1]}") or self._places.get(match[1])
            if place is None or here in (match[1], f"postbox.{match[1]}"):
                return match[0]
            return f"[`postbox.{match[1]}`]({place.removeprefix(page)})"

        def plain(piece):
            piece = re.sub(r"(?<![\w.])postbox\.(\w+)(?![\w(.])", link, _escaped(piece))
            return re.sub(r"\b([Ss]ee) Troubleshooting\b", r"\1 [Troubleshooting](../guides/troubleshoot.md)", piece)

        pieces = re.split(r"(`[^`]*`)", text)
        return "".join(re.sub(r"`postbox\.(\w+)`", link, piece) if re.fullmatch("`[^`]*`", piece) else plain(piece) for piece in pieces)

    def _states_linked(self, text, form):
        """The SQLSTATEs of a line Errors. Each is on the page of errors, or is one that the server raises by itself."""
        def link(match):
            if match[0] in self._states:
                return f"[{match[0]}](errors.md#{match[0].lower()})"
            if match[0] not in OF_SERVER:
                self._complain(form, f"its COMMENT names the SQLSTATE {match[0]}, which the sources do not raise")
            return match[0]
        return re.sub(r"(?<![\w`])[0-9][0-9A-Z]{4}(?![\w`])", link, text)


def _union(forms):
    """The arguments of forms that differ in nothing but types, with the types of all of them."""
    found = [dict(argument, types=[argument["type"]]) for argument in forms[0]["arguments"]]
    for form in forms[1:]:
        for argument, other in zip(found, form["arguments"]):
            if other["type"] not in argument["types"]:
                argument["types"].append(other["type"])
    return found


def _shape(form):
    """What forms that are described once have in common."""
    return form["returns"], [(argument["name"], argument["default"] is None) for argument in form["arguments"]]


def _signature(name, arguments, returns):
    """The form of a call, in as many rows as it needs."""
    said = [f"{argument['name']} {' | '.join(argument['types'])}{_default(argument['default'])}" for argument in arguments]
    line = f"postbox.{name}({', '.join(said)}) RETURNS {returns}"
    if len(line) <= 120:
        return [line]
    return [f"postbox.{name}(", *(f"    {argument}{',' if argument is not said[-1] else ''}" for argument in said), f") RETURNS {returns}"]


def _default(expression):
    """Without the type of a literal, which is that of the argument."""
    if expression is None:
        return ""
    return " DEFAULT " + re.sub(r"^('(?:[^']|'')*'|NULL)::[a-z0-9 ]+(?:\[\])?$", r"\1", expression)


def _escaped(text):
    """Text without code as Markdown that shows it."""
    return re.sub(r"([\\*\[\]])", r"\\\1", text.replace("<", "&lt;"))


def _wrapped(text, indent):
    return "\n".join(textwrap.wrap(text, 140, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
