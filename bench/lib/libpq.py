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
            ("PQexec", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]), ("PQbackendPID", ctypes.c_int, [ctypes.c_void_p]),
            ("PQprepare", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]),
            ("PQexecPrepared", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p),
                                                 ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]),
            ("PQntuples", ctypes.c_int, [ctypes.c_void_p]),
            ("PQgetvalue", ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
            ("PQresultStatus", ctypes.c_int, [ctypes.c_void_p]), ("PQclear", None, [ctypes.c_void_p])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Connection:
    def __init__(self, dsn):
        self._pq = _library()
        self._prepared = {}  # names of statements, by their text
        self._connection = self._pq.PQconnectdb(dsn.encode())
        if self._pq.PQstatus(self._connection) != _OK:
            raise Failure(self._pq.PQerrorMessage(self._connection).decode())

    @property
    def pid(self):
        """Of the process of the server."""
        return self._pq.PQbackendPID(self._connection)

    def run(self, sql):
        """Runs one statement; its rows are discarded."""
        self._finished(sql, self._pq.PQexec(self._connection, sql.encode()))

    def value(self, sql):
        """Runs a query; gives the first column of its first row."""
        return self._finished(sql, self._pq.PQexec(self._connection, sql.encode()), lambda result: self._pq.PQgetvalue(result, 0, 0).decode())

    def rows(self, sql):
        """Runs a query; gives how many rows it returns."""
        return self._finished(sql, self._pq.PQexec(self._connection, sql.encode()), self._pq.PQntuples)

    def run_prepared(self, sql, *values):
        """Runs one statement with parameters, prepared the first time; its rows are discarded."""
        if sql not in self._prepared:
            self._prepared[sql] = f"statement_{len(self._prepared)}".encode()
            self._finished(sql, self._pq.PQprepare(self._connection, self._prepared[sql], sql.encode(), 0, None))
        parameters = (ctypes.c_char_p * len(values))(*(str(value).encode() for value in values))
        self._finished(sql, self._pq.PQexecPrepared(self._connection, self._prepared[sql], len(values), parameters, None, None, 0))

    def _finished(self, sql, result, take=lambda result: None):
        status = self._pq.PQresultStatus(result)
        taken = take(result) if status == _TUPLES_OK else None
        self._pq.PQclear(result)
        if status not in (_COMMAND_OK, _TUPLES_OK):
            raise Failure(f"{sql}: {self._pq.PQerrorMessage(self._connection).decode()}")
        return taken

    def close(self):
        self._pq.PQfinish(self._connection)
