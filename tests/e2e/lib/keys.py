"""What tests of TLS and of identities share: certificates, keys of service accounts, clocks."""

import contextlib
import glob
import json
import os
import pathlib
import subprocess
import tempfile

import harness


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


CURVE = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")  # a key of it is made much faster than one of RSA


class Keys:
    """Certificates of a CA of the test's own, and keys of service accounts."""

    def __init__(self, directory):
        self.directory = directory
        self.roots = self.authority("roots")

    def path(self, name):
        return self.directory / name

    def authority(self, name):
        openssl("req", "-x509", "-newkey", *CURVE, "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", self.path(f"{name}.key"),
                "-out", self.path(f"{name}.pem"))
        return self.path(f"{name}.pem")

    def certificate(self, host, authority="roots"):
        """The flags of an emulator with a certificate for this host."""
        name = f"{host}-{authority}"
        request, extensions = self.path(f"{name}.csr"), self.path(f"{name}.ext")
        extensions.write_text(f"subjectAltName=DNS:{host}\n")
        openssl("req", "-newkey", *CURVE, "-nodes", "-subj", f"/CN={host}", "-keyout", self.path(f"{name}.key"), "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.path(f"{authority}.pem"), "-CAkey", self.path(f"{authority}.key"), "-CAcreateserial",
                "-days", "2", "-extfile", extensions, "-out", self.path(f"{name}.pem"))
        return ["--tls-cert", str(self.path(f"{name}.pem")), "--tls-key", str(self.path(f"{name}.key"))]

    def service_account(self, name, email):
        """Makes NAME.json, which a client uses, and NAME.pub, by which a server knows it."""
        private = self.path(f"{name}.key")
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024", "-out", private)
        openssl("pkey", "-in", private, "-pubout", "-out", self.path(f"{name}.pub"))
        self.path(f"{name}.json").write_text(json.dumps({
            "type": "service_account", "project_id": "dev", "private_key_id": name, "private_key": private.read_text(),
            "client_email": email, "client_id": "1", "token_uri": "https://oauth2.googleapis.com/token"}))

    @classmethod
    @contextlib.contextmanager
    def of(cls, **accounts):
        """Those of service accounts, by name, in a directory that is removed in the end. User postgres may read them."""
        with tempfile.TemporaryDirectory(prefix="postbox-keys.") as directory:
            keys = cls(pathlib.Path(directory))
            keys.directory.chmod(0o755)
            for name, email in accounts.items():
                keys.service_account(name, email)
            for file in keys.directory.iterdir():
                file.chmod(0o644)
            yield keys

    def replace(self, name, source):
        """As an operator does it: another file takes the name."""
        fresh = self.path(f"{name}.new")
        fresh.write_bytes(self.path(source).read_bytes())
        fresh.chmod(0o644)
        os.rename(fresh, self.path(name))


def faketime():
    """The library, not the program of this name, which would stand between us and the emulator."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not found:
        raise harness.Failure("faketime is not installed")
    return found[0]


def endpoint(address):
    return f"https://localhost:{address.rsplit(':', 1)[1]}"
