"""What pages of docs/reference say that no object says: their first lines, and texts that are taken out of sources as they are."""

import re

CONTENTS = ("These pages are made from the COMMENTs of the SQL objects, the descriptions of the settings, the error messages in the sources and `postbox --help`.",
            "psql shows the same text: `\\df+ postbox.*`, `\\dv+ postbox.*`, `\\d+ postbox.publication`.")
SETTINGS = ("A setting with context `sighup` is set in the configuration of the server, and takes effect after a reload. One with context `superuser` or `user` can also",
            "be set for a role, a database or a session. `ALTER DATABASE ... SET` with a setting of Postbox restarts the workers of that database when it commits.")
ERRORS = ("The errors that the functions of Postbox raise, by SQLSTATE. `…` stands for a name or a value. Errors of the server itself, of triggers and of",
          "constraints come in addition, with their own SQLSTATEs.")
ATTRIBUTES = ("The payload of an event is the data of its message. Everything else is in attributes, which are texts. The ordering key is the `aggregate_id`, unless the",
              "publication says otherwise. Attributes that an emitter adds follow the standard ones; a message has 100 attributes at most.")
COMMANDS = ("The executable `postbox` has subcommands: `postbox pull`, the process that receives and applies messages; tools for operators; and an emulator of Pub/Sub.",
            "Each subcommand has a manual page, such as `postbox-pull(1)`.",)

_SECTIONS = {"description": "Description", "environment": "Environment", "exit status": "Exit status", "files": "Files", "examples": "Examples", "notes": "Notes"}


def default(setting):
    value = setting["default"] or ""
    if setting["kind"] in ("string", "enum", "bool"):
        return f"`{value}`" if value else "`''`"
    return f"`{value}{' ' + setting['unit'] if setting['unit'] else ''}`"


def span(setting):
    if setting["kind"] == "integer":
        return f"{setting['least']} to {setting['greatest']}{' ' + setting['unit'] if setting['unit'] else ''}"
    return ", ".join(f"`{value}`" for value in setting["values"] or ())


def attributes(header):
    """(title, [(name, text)]) from the comments of proto/rules/attributes.h."""
    found = [(constant, name, " ".join(re.findall(r"// (.*)", comment)))
             for comment, constant, name in re.findall(r'((?:^// .*\n)+)^inline constexpr std::string_view (k\w+) = "(\w+)";', header, re.MULTILINE)]
    lists = {name: re.findall(r"k\w+", names) for name, names in re.findall(r"(k\w+Attributes) = \{(.*?)\};", header, re.DOTALL)}
    trace = re.search(r"kTraceNames = \{(.*?)\};", header, re.DOTALL)[1]
    clients = dict(re.findall(r'\{(k\w+|"\w+"), "(\w+)"\}', trace))

    def of(constants):
        described = {constant: (name, text) for constant, name, text in found}
        return [described[constant] for constant in constants]

    names = {constant: name for constant, name, _ in found}
    return [("Standard attributes", of(lists["kStandardAttributes"])),
            ("Context", of(lists["kContextAttributes"])),
            ("Traces", [(other, f"The same as `{names.get(one, one.strip(chr(34)))}`, under the name that Google's clients write and read. An event that has one of the two is sent with both, "
                                "unless the message has 100 attributes already.") for one, other in clients.items()]
             + of(["kTraceId"])),
            ("Times, which are stored and not sent", of(lists["kTimeAttributes"])),
            ("Messages of a dead-letter topic", [(name, text) for constant, name, text in found if name.startswith("postbox_") and not name.endswith("_")
                                                 and constant not in lists["kTimeAttributes"]])]


def commands(run, manual, *command):
    """(command, its help, sections of its manual page) of a command and those below it. `run` answers `postbox COMMAND --help`; `manual` is page -> text
    of docs/man."""
    text = run(*command)
    yield " ".join(("postbox", *command)), text, list(_sections(manual.get("-".join(("postbox", *command)), "")))
    for name in re.findall(r"^  ([a-z][a-z-]*) {2,}", text.partition("Subcommands:")[2], re.MULTILINE):
        yield from commands(run, manual, *command, name)


def _sections(page):
    for title, body in re.findall(r"^\[(.*?)\]\n(.*?)(?=^\[|\Z)", page, re.MULTILINE | re.DOTALL):
        if title in _SECTIONS:
            yield _SECTIONS[title], list(_lines(body))


def _lines(body):
    """Paragraphs, and items of lists with a term."""
    for part in re.split(r"^\.TP\n", body.strip(), flags=re.MULTILINE):
        lines = [_plain(line) for line in part.strip().splitlines()]
        if not lines:
            continue
        if body.strip().startswith(part):
            yield " ".join(lines)
        else:
            yield f"- {lines[0]}: {' '.join(lines[1:])}"


def _plain(line):
    line = re.sub(r"\\f[BI](.*?)\\fR", r"`\1`", line).replace("\\-", "-")
    bold = re.fullmatch(r"\.B (.*)", line)
    return f"`{bold[1]}`" if bold else line.replace("<", "&lt;")
