"""A connection to Postgres without a psql in between, for measuring single statements: libpq through ctypes."""

import ctypes
import ctypes.util

from harness import Failure

_OK, _COMMAND_OK, _TUPLES_OK = 0, 1, 2


def _library():
    library = ctypes.CDLL(ctypes.util.find_library("pq") or "libpq.so.5")
    for name, result, arguments in (
            ("PQconnectdb", ctypes.c_void_p, [ctypes.c_char_p]), ("PQstatus", ctypes.c_int, [ctypes.c_void_p]),
            ("PQerrorMessage", ctypes.c_char_p, [ctypes.c_void_p]), ("PQfinish", None, [ctypes.c_void_p]),
            ("PQexec", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
            ("PQresultStatus", ctypes.c_int, [ctypes.c_void_p]), ("PQclear", None, [ctypes.c_void_p])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Connection:
    def __init__(self, dsn):
        self._pq = _library()
        self._connection = self._pq.PQconnectdb(dsn.encode())
        if self._pq.PQstatus(self._connection) != _OK:
            raise Failure(self._pq.PQerrorMessage(self._connection).decode())

    def run(self, sql):
        """Runs one statement; its rows are discarded."""
        result = self._pq.PQexec(self._connection, sql.encode())
        status = self._pq.PQresultStatus(result)
        self._pq.PQclear(result)
        if status not in (_COMMAND_OK, _TUPLES_OK):
            raise Failure(f"{sql}: {self._pq.PQerrorMessage(self._connection).decode()}")

    def close(self):
        self._pq.PQfinish(self._connection)
