"""Gives a stopped cluster another system identifier, as pg_upgrade and a restore into a new cluster do."""

import os
import struct
import subprocess


def run_as_postgres(*command):
    command = [str(part) for part in command]
    if os.geteuid() == 0:
        command = ["runuser", "-u", "postgres", "--", *command]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _crc32c(data):
    """The checksum of what comes before each byte, and of everything."""
    crc = 0xFFFFFFFF
    yield crc ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        yield crc ^ 0xFFFFFFFF


def change_system_identifier(cluster):
    """The identifier is what pg_control begins with; its checksum follows the last field, wherever a release has that."""
    path = cluster.directory / "data/global/pg_control"
    content = bytearray(path.read_bytes())
    end = next(at for at, crc in enumerate(_crc32c(content[:1024])) if at >= 64 and at % 4 == 0 and struct.unpack_from("<I", content, at)[0] == crc)
    struct.pack_into("<Q", content, 0, struct.unpack_from("<Q", content, 0)[0] + 1)
    struct.pack_into("<I", content, end, list(_crc32c(content[:end]))[-1])
    path.write_bytes(content)
    # The WAL has the identifier in its pages, so it begins again behind the last checkpoint.
    run_as_postgres(cluster.bin / "pg_resetwal", "--force", cluster.directory / "data")
