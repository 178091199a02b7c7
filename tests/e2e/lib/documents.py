"""The blocks of code in the pages of the documentation."""

import re

from outcome import Failure

LANGUAGES = {"sql", "sql fragment", "sh", "conf", "json", "text", "yaml", "cpp", "diff", "python", "js", "go", "java"}


def blocks(name, text):
    """(language, text) of every fenced block of a page, in order. Blocks of lists are indented."""
    found, language, lines, indent = [], None, [], ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.fullmatch(r"( *)```(.*)", line)
        if language is None:
            if fence:
                indent, language, lines = fence[1], fence[2].strip(), []
                if language not in LANGUAGES:
                    raise Failure(f"{name}:{number}: the fence says {language!r}; it must be one of {sorted(LANGUAGES)}")
        elif fence:
            found.append((language, "\n".join(lines) + "\n"))
            language = None
        else:
            lines.append(line.removeprefix(indent))
    if language is not None:
        raise Failure(f"{name}: the last fence is not closed")
    return found


def sql(name, text):
    """The statements of its blocks that are to be run."""
    return [block for language, block in blocks(name, text) if language == "sql"]
