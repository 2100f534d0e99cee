"""A stand-in for an installation of MP-SPDZ, whose compiler and parties are small scripts."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.mpspdz.installation import PROTOCOLS, Installation

RECORDED = Path(__file__).parent / "mpspdz" / "recorded"

COMPILER = """
import os, sys
from pathlib import Path
source = next(Path(a) for a in sys.argv if a.endswith(".mpc"))
if os.environ.get("FAIL_TO_COMPILE"):
    raise SystemExit("CompilerError: no such thing")
name = "-".join([source.stem, *sys.argv[sys.argv.index(str(source)) + 1:]])
for folder in ("Schedules", "Bytecode"):
    Path("Programs", folder).mkdir(parents=True)
Path("Programs/Schedules", name + ".sch").write_text(" ".join(sys.argv))
with open(Path(__file__).with_name("compiled"), "a") as log:
    log.write(name + chr(10))
"""


def write_certificate(folder: Path, party: int, until: datetime | None = None, linked: bool = True) -> None:
    """A self-signed pair as MP-SPDZ's script makes it, with its hash link."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"P{party}")])
    until = until or datetime.now(UTC) + timedelta(days=30)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(until - timedelta(days=60))
        .not_valid_after(until)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    (folder / f"P{party}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    data = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / f"P{party}.key").write_bytes(data)
    link = folder / f"{party:08x}.0"
    link.unlink(missing_ok=True)
    if linked:
        link.symlink_to(f"P{party}.pem")


def write_party(home: Path, body: str, protocol: str = "semi2k") -> None:
    """A party that runs `body`, Python text."""
    path = home / f"{protocol}-party.x"
    path.write_text(f"#!{sys.executable}\nimport os, signal, sys\nfrom pathlib import Path\n{body}\n")
    path.chmod(0o755)


MEAN = f"""
index, q = int(sys.argv[sys.argv.index("-p") + 1]), int(sys.argv[-1].split("-")[-7])
home, me = Path(sys.argv[0]).parent, f"P{{index}}"
def say(name):
    print((Path({str(RECORDED)!r}) / name).read_text(), flush=True)
def result(ring_bits=128):
    name = f"Z2^{{ring_bits}}".encode()
    header = (len(name) + 4).to_bytes(8, "little") + name + ring_bits.to_bytes(4, "little")
    if index == 2:
        return say("dealer-ring-128-dealer.txt")
    file = Path("Persistence", f"Transactions-{{me}}.data")
    inputs = file.read_bytes() if ring_bits == 128 else header
    shares = ((1 << 32) // q if index == 0 else 0).to_bytes(ring_bits // 8, "little") * q
    file.write_bytes(inputs + shares)
    say("semi2k-128-P0.txt")
"""
"""What parties of `assisted` with the rule fedavg and no clipping write: shares of 1/q, which are public. Arguments of
the program end the command line: q d rule lam tau fairness_max ratio_max."""


def install(home: Path) -> Installation:
    """All files of an installation; its parties fail until `write_party` gives them something to do."""
    home.mkdir()
    (home / "compile.py").write_text(COMPILER)
    (home / "CHANGELOG.md").write_text("Text before.\n\n## 0.4.2 (Dec 24, 2025)\n\n- x\n\n## 0.4.1 (May 30, 2025)\n")
    for party in range(3):
        write_certificate(home / "Player-Data", party)
    for protocol in PROTOCOLS:
        write_party(home, "raise SystemExit(1)", protocol)
    return Installation(home)
