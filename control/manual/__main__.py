"""python3 -m manual ROOT: writes docs/reference, from a private server with the extension of the stage."""

import pathlib
import sys

from . import source


def main(root):
    root = pathlib.Path(root)
    folder = root / "docs/reference"
    pages = source.reference().pages()
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if str(old.relative_to(root)) not in pages:
            old.unlink()
    for name, text in pages.items():
        (root / name).write_text(text, encoding="utf-8")
    print(f"{len(pages)} pages in {folder.relative_to(root)}")


main(*sys.argv[1:])
