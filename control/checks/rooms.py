"""The table of the rooms: which folder may include which, and which headers from outside.

A room is a folder and the files directly in it. What is not in this table may not be included: a new folder or a
new library is entered here first.
"""
import functools
import os
import re
import subprocess
from dataclasses import dataclass

# Headers from outside, by world. A name that ends with `/` stands for what is below it.
STANDARD = set('''
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
    clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
    syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
    variant vector version
    assert.h ctype.h errno.h fenv.h float.h inttypes.h limits.h locale.h math.h setjmp.h signal.h stdarg.h stdbool.h
    stddef.h stdint.h stdio.h stdlib.h string.h time.h uchar.h wchar.h wctype.h'''.split())
SYSTEM = '''
    arpa/ linux/ net/ netinet/ sys/ dirent.h dlfcn.h execinfo.h fcntl.h getopt.h grp.h ifaddrs.h malloc.h netdb.h
    poll.h pthread.h pwd.h sched.h spawn.h strings.h syslog.h termios.h ucontext.h unistd.h immintrin.h
    xmmintrin.h'''.split()
# Used where no server is installed, too: the answer does not depend on the machine.
SERVER = '''
    access/ archive/ backup/ bootstrap/ catalog/ commands/ common/ datatype/ executor/ fe_utils/ foreign/ jit/ lib/
    libpq/ mb/ nodes/ optimizer/ parser/ partitioning/ pch/ port/ portability/ postmaster/ regex/ replication/ rewrite/
    snowball/ statistics/ storage/ tcop/ tsearch/ utils/
    c.h fmgr.h funcapi.h getopt_long.h miscadmin.h pg_config.h pg_config_manual.h pg_config_os.h pg_getopt.h
    pg_trace.h pgstat.h pgtar.h pgtime.h plpgsql.h port.h postgres.h postgres_ext.h postgres_fe.h
    rusagestub.h varatt.h windowapi.h'''.split()
WORLDS = {
    'libpq': ['libpq-fe.h', 'libpq-events.h'],
    'server': SERVER,
    'gRPC': ['grpc/', 'grpcpp/', 'google/protobuf/'],
    'abseil': ['absl/'],
    'CLI11': ['CLI/'],
    'spdlog': ['spdlog/'],
    'json': ['nlohmann/'],
    'YAML': ['yaml-cpp/'],
    'systemd': ['systemd/'],
    'OpenSSL': ['openssl/'],
    'SQLite': ['sqlite3.h'],
    'curl': ['curl/'],
    'httplib': ['httplib.h'],
    'Prometheus': ['prometheus/'],
    'GoogleTest': ['gtest/', 'gmock/'],
    'valgrind': ['valgrind/'],
    'system': SYSTEM,
}
# Never in one file, however they get there: Postgres longjmps and redefines what the C++ libraries use.
NETWORK = ('gRPC', 'abseil')


@dataclass(frozen=True)
class Room:
    """`includes`: rooms. `worlds`: headers from outside; the standard library is everybody's."""
    includes: tuple = ()
    worlds: tuple = ()
    plain_of: tuple = ()  # rooms of which only headers without gRPC and abseil may be included


RULES, PROTO, OWN_RULES = 'proto/rules', 'proto', 'extension/rules'
PLAIN = (RULES, OWN_RULES)  # without anything but the standard library
BASE, TRUST, SHARED = 'extension/base', 'extension/trust', 'extension/shared'
LIFECYCLE, REGISTRY = 'extension/lifecycle', 'extension/registry'
EMIT, APPLY = 'extension/emit', 'extension/apply'
PUBLISHER, PUBLISHER_BASE, POLICY = 'worker/publisher', 'worker/publisher/base', 'worker/publisher/policy'
STORED, SOURCE = 'worker/publisher/store', 'worker/publisher/source'
DELIVERY = 'worker/publisher/delivery'
WORKER_BASE, PULLER, METRICS = 'worker/base', 'worker/puller', 'worker/metrics'
PUBSUB, PUBLISH, PULL = 'worker/pubsub', 'worker/pubsub/publish', 'worker/pubsub/pull'
CLIENT_AUTH, TRACES = 'worker/pubsub/auth', 'worker/pubsub/traces'
EMULATOR, SCHEMA, STORE = 'worker/emulator', 'worker/emulator/schema', 'worker/emulator/store'
AUTH, BROKER = 'worker/emulator/auth', 'worker/emulator/broker'
REQUEST_RULES, SUBSCRIPTION = 'worker/emulator/rules', 'worker/emulator/subscription'
CLI_BASE, DOCTOR, ADMIN = 'worker/cli/base', 'worker/cli/doctor', 'worker/cli/admin'
PROVISION, COMPLETION, AUDIT = 'worker/cli/provision', 'worker/cli/completion', 'worker/cli/audit'
REBUILD, CONSOLE, METRICS_COMMAND = 'worker/cli/rebuild', 'worker/cli/console', 'worker/cli/metrics'

# What both kinds of outbox are made of.
OF_SOURCES = (DELIVERY, SOURCE, STORED, PUBLISHER_BASE, POLICY, BASE, TRUST, SHARED)
# PROTO is what protoc makes of the .proto files; no header of it stands in the tree.
ROOMS = {
    RULES: Room(),
    OWN_RULES: Room(),
    BASE: Room((), ('server',)),
    TRUST: Room((BASE,), ('server',)),
    SHARED: Room((TRUST, BASE, OWN_RULES), ('server',)),
    LIFECYCLE: Room((SHARED, TRUST, BASE, *PLAIN), ('server',)),
    REGISTRY: Room((LIFECYCLE, SHARED, TRUST, BASE, *PLAIN), ('server',)),
    EMIT: Room((REGISTRY, LIFECYCLE, SHARED, TRUST, BASE, *PLAIN), ('server',)),
    APPLY: Room((REGISTRY, LIFECYCLE, SHARED, TRUST, BASE, *PLAIN), ('server',)),
    PUBLISHER_BASE: Room((BASE, TRUST, SHARED, *PLAIN), ('server',)),
    STORED: Room((PUBLISHER_BASE, BASE, TRUST, SHARED, CLIENT_AUTH, *PLAIN), ('server',), (CLIENT_AUTH,)),
    SOURCE: Room((STORED, PUBLISHER_BASE, BASE, TRUST, SHARED, *PLAIN, PUBLISH, TRACES), ('server',), (PUBLISH, TRACES)),
    DELIVERY: Room((SOURCE, STORED, PUBLISHER_BASE, POLICY, BASE, SHARED, *PLAIN, CLIENT_AUTH, PUBLISH), ('server',),
                   (CLIENT_AUTH, PUBLISH)),
    f'{SOURCE}/log': Room(OF_SOURCES, ('server',)),
    f'{SOURCE}/table': Room(OF_SOURCES, ('server',)),
    POLICY: Room((*PLAIN,)),
    PUBLISHER: Room((f'{SOURCE}/log', f'{SOURCE}/table', *OF_SOURCES, *PLAIN, PUBLISH, TRACES), ('server', 'system'),
                    (PUBLISH, TRACES)),
    WORKER_BASE: Room((), ('system',)),
    PUBSUB: Room((*PLAIN,), ('gRPC', 'abseil', 'curl', 'system')),
    CLIENT_AUTH: Room((PUBSUB, *PLAIN), ('gRPC', 'abseil', 'json', 'OpenSSL', 'system')),
    TRACES: Room((PUBSUB, *PLAIN, PROTO), ('gRPC', 'abseil')),
    PUBLISH: Room((PUBSUB, CLIENT_AUTH, TRACES, *PLAIN, PROTO), ('gRPC', 'abseil', 'system')),
    PULL: Room((PUBSUB, CLIENT_AUTH, TRACES, *PLAIN, PROTO), ('gRPC', 'abseil')),
    METRICS: Room((), ('Prometheus', 'system')),
    PULLER: Room((WORKER_BASE, METRICS, CLIENT_AUTH, TRACES, PUBLISH, PULL, PROTO, *PLAIN),
                 ('libpq', 'spdlog', 'json', 'Prometheus', 'system', 'systemd')),
    STORE: Room((WORKER_BASE,), ('abseil', 'SQLite', 'system')),
    REQUEST_RULES: Room((PROTO,), ('gRPC', 'abseil')),
    SCHEMA: Room((REQUEST_RULES, PROTO, *PLAIN), ('gRPC', 'abseil', 'json')),
    SUBSCRIPTION: Room((REQUEST_RULES, PROTO), ('gRPC', 'abseil')),
    AUTH: Room((PROTO,), ('gRPC', 'abseil', 'json', 'OpenSSL', 'httplib', 'system')),
    BROKER: Room((SUBSCRIPTION, SCHEMA, REQUEST_RULES, STORE, AUTH, PROTO), ('gRPC', 'abseil')),
    EMULATOR: Room((BROKER, SUBSCRIPTION, REQUEST_RULES, AUTH, WORKER_BASE, PROTO),
                   ('gRPC', 'abseil', 'OpenSSL', 'system')),
    CLI_BASE: Room((WORKER_BASE, PULLER, PUBSUB, CLIENT_AUTH, PROTO, *PLAIN), ('gRPC', 'json', 'libpq', 'system')),
    DOCTOR: Room((CLI_BASE, PULLER, PROTO, *PLAIN), ('gRPC', 'json')),
    ADMIN: Room((WORKER_BASE, CLI_BASE, PULLER, PROTO, *PLAIN), ('gRPC', 'json', 'system')),
    PROVISION: Room((CLI_BASE, PULLER, PROTO, *PLAIN), ('gRPC', 'json', 'YAML', 'system')),
    AUDIT: Room((CLI_BASE, PULLER), ('json', 'system')),
    REBUILD: Room((CLI_BASE, PULLER, PROTO, *PLAIN), ('gRPC', 'system')),
    CONSOLE: Room((CLI_BASE, PROVISION, METRICS, PULLER, RULES), ('libpq', 'json', 'OpenSSL', 'httplib', 'system')),
    METRICS_COMMAND: Room((CLI_BASE, METRICS, PULLER), ('gRPC', 'json', 'Prometheus', 'system')),
    COMPLETION: Room((), ('CLI11',)),
    'worker/cli': Room((WORKER_BASE, CLI_BASE, DOCTOR, ADMIN, PROVISION, AUDIT, REBUILD, CONSOLE, METRICS_COMMAND, COMPLETION,
                        PULLER, METRICS, EMULATOR), ('CLI11',)),
}
# Benchmarks and tests include what they need, in any folder below these. No room includes them.
WORKSHOPS = ('bench', 'tests')
ANYTHING = Room((*ROOMS, PROTO), tuple(WORLDS))

# What is linked together, by the rooms that it is made of. The rules are compiled into each.
MODULES = {
    'postbox.so': (*PLAIN, BASE, TRUST, SHARED, LIFECYCLE, REGISTRY, EMIT, APPLY),
    'postbox_worker.so': (*PLAIN, *OF_SOURCES, f'{SOURCE}/log', f'{SOURCE}/table', PUBLISHER, PUBSUB, CLIENT_AUTH,
                          TRACES, PUBLISH, PULL),
    'postbox': (*PLAIN, WORKER_BASE, PUBSUB, CLIENT_AUTH, TRACES, PUBLISH, PULL, METRICS, PULLER, REQUEST_RULES, SCHEMA, STORE,
                SUBSCRIPTION, AUTH, BROKER, EMULATOR, CLI_BASE, DOCTOR, ADMIN, PROVISION, AUDIT, REBUILD, CONSOLE,
                METRICS_COMMAND, COMPLETION, 'worker/cli'),
}


@functools.lru_cache(maxsize=None)
def room_of(path):
    """The room that a file is in: a key of ROOMS or one of WORKSHOPS; None if it is in none."""
    folder = os.path.dirname(path)
    if folder in ROOMS:
        return folder
    top = path.split('/')[0]
    return top if top in WORKSHOPS and '/' in path else None


def rules_of(room):
    return ROOMS.get(room, ANYTHING)


def may_include(room, other):
    """Whether the table lets files of `room` include files of `other`."""
    rules = rules_of(room)
    return other == room or other in rules.includes


@functools.lru_cache(maxsize=None)
def _server_directory():
    """Where the server's headers are installed on this machine, or ''."""
    try:
        return subprocess.run(['pg_config', '--includedir-server'], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ''


@functools.lru_cache(maxsize=None)
def world_of(header):
    """The world of a header that is not in the tree: 'standard', a key of WORLDS, or None if it is unknown."""
    header = os.path.normpath(header)
    if header in STANDARD:
        return 'standard'
    for world, names in WORLDS.items():
        if any(header == name or name.endswith('/') and header.startswith(name) for name in names):
            return world
    directory = _server_directory()
    return 'server' if directory and os.path.isfile(os.path.join(directory, header)) else None


@functools.lru_cache(maxsize=None)
def generated_from(header):
    """The .proto file that a generated header is made of, or None if its name is not that of one."""
    match = re.fullmatch(r'((?:google|opentelemetry|postbox)/.*?)(?:\.grpc)?\.pb\.h', os.path.normpath(header))
    return f'{PROTO}/{match[1]}.proto' if match else None
