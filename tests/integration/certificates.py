# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for a test, by Debian's `openssl`."""
import os
import shutil
import subprocess


def missing():
    return None if shutil.which("openssl") else "no openssl (Debian's openssl)"


def openssl(*words):
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"openssl {' '.join(words)}: {done.stderr}")


class Authority:
    """Its files are `folder`/NAME.pem and NAME.key."""

    def __init__(self, folder, name="ca"):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.name = name
        self.ca = self.path(f"{name}.pem")
        self.key = self.path(f"{name}.key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-subj", f"/CN=the test's {name}", "-days", "2", "-keyout", self.key, "-out",
                self.ca)

    def path(self, name):
        return os.path.join(self.folder, name)

    def issue(self, name, names="IP:127.0.0.2", use="serverAuth,clientAuth", days="2", into=None):
        """A certificate for `names`. Returns its two files, in `into` where one is given."""
        cert, key, request, more = (os.path.join(into or self.folder, name + end)
                                    for end in (".pem", ".key", ".csr", ".ext"))
        with open(more, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={names}\nextendedKeyUsage={use}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN={name}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.key,
                "-CAcreateserial", "-days", days, "-extfile", more, "-out", cert)
        return cert, key

    def options(self, name, ca=None, **issued):
        cert, key = self.issue(name, **issued)
        return ("--tls-cert", cert, "--tls-key", key, "--tls-ca", ca or self.ca)
