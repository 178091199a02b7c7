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
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def change_system_identifier(cluster):
    """The identifier is what pg_control begins with; its checksum follows the last field, wherever a release has that."""
    path = cluster.directory / "data/global/pg_control"
    content = bytearray(path.read_bytes())
    end = next(at for at in range(64, 1024, 4) if struct.unpack_from("<I", content, at)[0] == _crc32c(content[:at]))
    struct.pack_into("<Q", content, 0, struct.unpack_from("<Q", content, 0)[0] + 1)
    struct.pack_into("<I", content, end, _crc32c(content[:end]))
    path.write_bytes(content)
    # The WAL has the identifier in its pages, so it begins again behind the last checkpoint.
    run_as_postgres(cluster.bin / "pg_resetwal", "--force", cluster.directory / "data")
