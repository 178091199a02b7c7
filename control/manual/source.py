"""Where the pages come from: a server with the extension, the executable `postbox`, and the sources."""

import pathlib
import subprocess
import sys

from . import errors, texts
from .catalog import Catalog
from .pages import Reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e/lib"))
import harness  # pylint: disable=wrong-import-position


def reference():
    """Of a server that is started for it."""
    with harness.Testbed() as bed:
        bed.cluster.sql("postgres", "CREATE EXTENSION postbox")
        return of_server(bed)


def of_server(bed, database="postgres"):
    """Of a running server with the extension in this database."""
    catalog = Catalog(lambda query: [row[0] for row in bed.cluster.sql(database, query)])
    codes = next((harness.build_directory() / "stage").glob("**/errcodes.txt"))
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "extension", "worker/publisher", "sql"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    sources = {name: (ROOT / name).read_text("utf-8") for name in tracked if name.endswith((".cc", ".h", ".sql"))}
    manual = {page.stem: subprocess.run([ROOT / "control/man-page", page.stem], check=True, capture_output=True, text=True).stdout for page in (ROOT / "docs/man").glob("*.h2m")}

    def help_of(*command):
        return subprocess.run([bed.postbox, *command, "--help"], check=True, capture_output=True, text=True).stdout

    return Reference(catalog, errors.raised(sources, codes.read_text("utf-8")),
                     texts.attributes((ROOT / "proto/rules/attributes.h").read_text("utf-8")), list(texts.commands(help_of, manual)))
