"""A tiny configuration, the real data, and a warm start of client processes for every test that trains."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from orchestrator.config import Config, load_config
from orchestrator.coordinator.client_pool import warm_up
from orchestrator.errors import ConfigError
from orchestrator.mpspdz.installation import Installation, find
from orchestrator.transport.channel import Channel, Position, listen
from orchestrator.transport.door import accept, connect
from orchestrator.transport.tls import ROLES, Identity, create_certificates
from tests.mpspdz_standin import install

settings.register_profile("safegnn", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("safegnn")

TINY = (
    "data.name=synthetic",
    "data.synthetic={nodes: 120, edges: 300, features: 6}",
    "clients={count: 6, hops: 1}",
    "model.hidden=8",
    "method={local_epochs: 2, learning_rate: 1e-2}",
    "federation={rounds: 2, cohort: 3}",
    "engine={name: plaintext, timeout_sec: 30, training_timeout_sec: 60}",
    "evaluation.exact_beside_noise=true",
)

FITS = {
    "f2gnn": (),
    "fedavg": (),
    "fedprox": (),
    "fairfed": (),
    "glocalfair": (),
    "privfairfl": (),
    "afed": (),
    "f2pgnn": (),
    "fedfairgnn": (),
    "fairdual": (),
    "fairgnn": (),
    "edits": ("evaluation.where=clients",),
    "local": ("evaluation.where=clients",),
    "fedpub": ("evaluation.where=clients", "model.name=gcn-classifier"),
    "fedgcn": ("model.name=gcn-classifier", "clients.partition=disjoint"),
    "gcfl": ("evaluation.where=clients",),
    "fedsage": ("model.name=sage",),
    "fedsage+": ("model.name=sage",),
}
"""What each method asks of the other sections, where the defaults are not that."""


TRACEBACK = "Traceback (most recent call last)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """No traceback reaches a user: a test in whose output one shows fails, whichever process printed it."""
    report = yield
    shown = next(
        (text for title, text in report.sections if title.startswith("Captured std") and TRACEBACK in text), ""
    )
    if report.passed and shown:
        report.outcome, report.longrepr = "failed", f"a traceback was printed:\n{shown}"
    return report


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Config]:
    """``tiny(run_dir, "federation.rounds=3", ...)``: six clients on 120 nodes, the plaintext engine."""

    def build(run_dir: Path, *overrides: str, presets: tuple[str, ...] = ()) -> Config:
        return load_config(presets, overrides=[*TINY, f"run.dir='{run_dir}'", *overrides])

    return build


@pytest.fixture(scope="session")
def forkserver() -> None:
    """The helper that client processes are forked from has started, so that short timeouts measure clients only."""
    process = warm_up().Process(target=os.getpid)
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.fixture(scope="module")
def one_thread():
    """What client processes run with; restored for the other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """``real_data(name)``: the folder of a real data set, or a skip that says where it was looked for."""
    root = Path(os.environ.get("SAFEGNN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no real data at {root / name}; set SAFEGNN_TEST_DATA to the folder that holds {name}/")
        return root / name

    return folder


@pytest.fixture(scope="session")
def planetoid(real_data) -> Callable[[str], Path]:
    """``planetoid(name)``: the folder, or a skip where it holds other citation graphs only."""

    def folder(name: str) -> Path:
        found = real_data("planetoid")
        if not (found / f"ind.{name}.allx").exists():
            pytest.skip(f"no ind.{name}.* at {found}; `safegnn data fetch {name} --data-dir {found}` brings them")
        return found

    return folder


@pytest.fixture
def standin(tmp_path) -> Installation:
    """An installation of MP-SPDZ whose compiler and parties are scripts."""
    return install(tmp_path / "MP-SPDZ")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Path:
    """A folder of keys and certificates for all roles."""
    folder = tmp_path_factory.mktemp("tls") / "certificates"
    create_certificates(folder)
    return folder


@pytest.fixture(scope="session")
def installation() -> Installation:
    """The real one of MP-SPDZ; the tests that need it are skipped, with the reason, where there is none."""
    try:
        return find()
    except ConfigError as error:
        pytest.skip(f"needs an installation of MP-SPDZ: {error}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """Where bytecode is kept; a folder of one's own saves compiling."""
    return Path(os.environ.get("SAFEGNN_TEST_CACHE") or tmp_path_factory.mktemp("bytecode"))


@pytest.fixture(scope="session")
def identities(certificates):
    return {role: Identity.load(certificates, role) for role in ROLES}


@pytest.fixture
def connected(identities):
    """``connected(position, timeout_sec, through)``: the channels of server 0 and of server 1 to each other.

    ``through`` turns the address of server 1 into one that leads there.
    """
    channels = []

    def build(position, timeout_sec, through=lambda address: address):
        with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
            right = pool.submit(accept, listener, {"server 0"}, identities["server 1"], b"s", Position(), 20.0)
            address = through(listener.getsockname())
            left = connect(address, identities["server 0"], b"s", "server 1", Position(), 20.0)
            sides = (left, right.result()["server 0"])
        # The handshake may take its time; only the channels' own timeouts are short.
        channels.extend(Channel(side._socket, side.peer, position, timeout_sec) for side in sides)
        return tuple(channels[-2:])

    yield build
    for channel in channels:
        channel.close()
