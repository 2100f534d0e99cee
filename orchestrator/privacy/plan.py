"""One plan makes sampler, mechanism and accountant together, so that they cannot disagree.

From a plan come the absolute noise that each server adds, the adjacency, and epsilon as seen by

* an outsider, who sees the released models: the cohorts are hidden in the sampling;
* another client, who also knows in which rounds it took part itself, but not who else did;
* a server, which knows every cohort, so that sampling hides nobody from it, and its own noise, which it can subtract.

Formal guarantees (docs/privacy.md has the proofs and sources):

* Both servers' noises are in what is released, and whoever knows neither has both against it. The sum of two discrete
  Gaussians is none, but on a grid as fine as the ring's it differs from one by less than any number can say (Kairouz,
  Liu and Steinke, arXiv:2102.06387).
* `noise = "each_full"`: each server's noise alone has standard deviation sigma times the sensitivity. A server is
  accounted at sigma; an outsider and another client at sqrt(2) sigma.
* `noise = "split"` (the paper): each has sigma/sqrt(2). A server is accounted at that, the others at sigma.
* `noise = "clients"`: `honest` of a round's clients have sigma together, and no server has any. A server and an
  outsider are accounted at sigma, another client, which knows its own part, at sigma sqrt(1 - 1/honest).
* Another client knows no server's noise, but its own part in every round. Given that, the others are a fixed-size
  sample of q or q-1 among n-1: it is accounted at q of n-1. Poisson samples are independent: it learns nothing about
  the others.
* Where clients take turns ("cyclic") nobody counts on sampling, and every observer is accounted as a server is: by a
  Gaussian mechanism for each of a client's turns. That holds for noise with bands too (`orchestrator.privacy.bands`),
  and whether or not clients keep state.
* A person who is in several clients is not one client: `PrivacyPlan.of_persons` is the plan for neighbours that differ
  in one person (docs/privacy.md, "Persons").
* Where cohorts are of fixed size and clients keep state, sampling is counted on by nobody (`PrivacyPlan.amplified`).

Sampling hides nobody from whoever has the key that cohorts follow from (orchestrator/coordinator/cohorts.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.errors import ConfigError
from orchestrator.privacy.accountant import ACCOUNTANTS, Accountant
from orchestrator.privacy.client_noise import left_multiplier
from orchestrator.privacy.release import Release

__all__ = [
    "ADJACENCY",
    "LARGEST_MULTIPLIER",
    "LEAST_MULTIPLIER",
    "SAMPLERS",
    "VIEWS",
    "NoisySum",
    "PrivacyPlan",
    "View",
    "server_stddev",
]

SAMPLERS = ("fixed", "poisson", "cyclic")
ADJACENCY = {"fixed": "replace-one", "poisson": "add/remove", "cyclic": "replace-one"}
"""What neighbouring populations of clients differ in, by sampler."""

LEAST_MULTIPLIER, LARGEST_MULTIPLIER = 1e-6, 1e6
"""What accountants can compute with; below, nothing is protected."""

_MOST_CLIENTS = 10**12

_WRONG, _TRUNCATIONS = 2.0**-54, 64
"""The probability that a truncation on shares goes wrong, and how many a client needs; docs/protocol.md, "Numbers"."""

View = Literal["outsider", "client", "server"]
VIEWS: tuple[View, ...] = ("outsider", "client", "server")


def server_stddev(noise_multiplier: float, sensitivity: float, noise: str) -> float:
    """Absolute standard deviation of the noise that each server adds to its share."""
    if noise == "clients":
        return 0.0
    return noise_multiplier * sensitivity / (1.0 if noise == "each_full" else math.sqrt(2.0))


@dataclass(frozen=True)
class NoisySum:
    """A sum over clients that is released besides the models, with noise of its own.

    Attributes:
        name: of it.
        noise_multiplier: sigma, relative to how far one client can move the sum, per server as for the models.
        every: rounds between its releases, beside that after the last round; 0: after the last round alone; None: it is
            released once, before the first round.
        of_cohort: whether it is of a round's cohort, and a part of what every round releases.
    """

    name: str
    noise_multiplier: float
    every: int | None = None
    of_cohort: bool = False

    def releases(self, rounds: int) -> int:
        """How often it is released beside so many rounds, none of which is repeated."""
        if self.every is None:
            return 0 if self.of_cohort else 1
        return min(1, rounds) if self.every == 0 else -(-rounds // self.every)


@dataclass(frozen=True)
class PrivacyPlan:
    """What a run does for privacy, all of it public.

    Attributes:
        sampler: "fixed", q of n without replacement, replace-one neighbours; "poisson", rate q/n, add/remove; "cyclic",
            q of n in turn, replace-one.
        clients: n.
        cohort: q; with "poisson" the expected size.
        noise_multiplier: sigma, relative to the L2 sensitivity; 0 is allowed and makes epsilon infinite.
        delta: of (epsilon, delta)-differential privacy, for one client's whole data.
        accountant: key of `ACCOUNTANTS`.
        noise: "each_full", "split" or "clients", see above.
        sensitivity: absolute L2 sensitivity under the sampler's adjacency; see `orchestrator.privacy.sensitivity`.
        bit_noise_multiplier: where a round also releases a noisy count of bits, for the adaptive clip bound: its noise
            relative to the count's sensitivity, per server as for the aggregate; None where it does not.
        amplified: whether sampling may be counted on. With "fixed" cohorts of clients that keep state it may not: what
            others train tells in later rounds who took part before. Everybody is then taken to know the cohorts.
        sums: what is released besides. In those of all clients no sampling hides anybody.
        lies: bound on the probability that a round uses an upload of which the sensitivity assumes that it is refused.
        honest: with "clients", of how many clients' noise sigma is, at least; nobody but each of them knows it.
        mismatch: how far the logarithm of the probability of a round's noise may be from that of one discrete Gaussian.
        group: 0: neighbours differ in one client; k: in the data of k clients, see `of_persons`.

    Raises:
        ConfigError: on construction, with one line that names the value at fault.
    """

    sampler: Literal["fixed", "poisson", "cyclic"]
    clients: int
    cohort: int
    noise_multiplier: float
    delta: float
    accountant: str = "tightest"
    noise: Literal["each_full", "split", "clients"] = "each_full"
    sensitivity: float = 1.0
    bit_noise_multiplier: float | None = None
    amplified: bool = True
    sums: tuple[NoisySum, ...] = ()
    lies: float = 0.0
    honest: int | None = None
    mismatch: float = 0.0
    group: int = 0

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise ConfigError(
                f"sampler {self.sampler}: no accountant is valid for it; expected one of {', '.join(SAMPLERS)}"
            )
        if self.accountant not in ACCOUNTANTS:
            raise ConfigError(f"accountant {self.accountant}: expected one of {', '.join(ACCOUNTANTS)}")
        if self.accountant == "paper" and self.sampler == "cyclic":
            raise ConfigError("accountant paper: the paper's cohorts are sampled; expected sampler fixed or poisson")
        if self.noise not in ("each_full", "split", "clients"):
            raise ConfigError(f"noise {self.noise}: expected each_full, split or clients")
        if not 1 <= self.clients <= _MOST_CLIENTS:
            raise ConfigError(f"clients {self.clients}: expected 1 to {_MOST_CLIENTS:g}")
        if not 1 <= self.cohort <= self.clients:
            raise ConfigError(f"cohort {self.cohort}: expected 1 to {self.clients}, the number of clients")
        if self.noise != "clients" and self.honest is not None:
            raise ConfigError(f"honest clients {self.honest}: they count with noise clients alone")
        if self.noise == "clients" and (self.sampler == "poisson" or not 1 <= (self.honest or 0) <= self.cohort):
            raise ConfigError(
                f"noise clients: expected honest clients, 1 to {self.cohort}, of cohorts that are not poisson"
            )
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta {self.delta:g}: expected a number between 0 and 1")
        for name in ("noise_multiplier", "sensitivity", "bit_noise_multiplier"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name.replace('_', ' ')} {value:g}: expected a finite number of at least 0")
            if value and name != "sensitivity" and not LEAST_MULTIPLIER <= value <= LARGEST_MULTIPLIER:
                raise ConfigError(
                    f"{name.replace('_', ' ')} {value:g}: expected 0, or a number from {LEAST_MULTIPLIER:g} to "
                    f"{LARGEST_MULTIPLIER:g}"
                )

    @property
    def adjacency(self) -> str:
        """What neighbouring populations differ in; with "paper" what the paper claims, whatever the sampler."""
        if self.group:
            return f"one person's data, in up to {self.group} clients"
        return ADJACENCY["poisson" if self.accountant == "paper" else self.sampler]

    def of_persons(self, memberships: int) -> PrivacyPlan:
        """The same run, whose neighbours differ in one person: in all that up to so many clients hold, and in no other.

        Sensitivity and noise stay those of one client. Each of these clients may move its round by what exchanging one
        client does; a person in one client is a client, where neighbours are replace-one.
        """
        group = min(memberships, self.clients)
        return replace(self, group=0 if group == 1 and self.sampler != "poisson" else group)

    @property
    def _exchanged(self) -> float:
        """What exchanging one client of a group moves, in sensitivities: under add/remove one goes and one comes."""
        return 2.0 if self.group and self.sampler == "poisson" else 1.0

    @property
    def server_stddev(self) -> float:
        """Absolute standard deviation of each server's noise on the aggregate."""
        return server_stddev(self.noise_multiplier, self.sensitivity, self.noise)

    @property
    def effective_multiplier(self) -> float:
        """Sigma of the one Gaussian mechanism that aggregate, bits and cohorts' sums are, with `noise` as for sigma.

        Scaled to noise of equal size they are one vector, so s^-2 = sigma^-2 + sigma_b^-2 (McMahan et al.,
        arXiv:1812.06210, section 3; Andrew et al., NeurIPS 2021, theorem 1).
        """
        sigma, bits = self.noise_multiplier, self.bit_noise_multiplier
        besides = [noisy.noise_multiplier for noisy in self.sums if noisy.of_cohort]
        for other in besides if bits is None else [bits, *besides]:
            sigma = sigma * other / math.hypot(sigma, other) if sigma and other else 0.0
        return sigma

    def new_accountant(self) -> Accountant:
        """An empty accountant of the plan's kind."""
        return ACCOUNTANTS[self.accountant]()

    def sum_release(self, noisy: NoisySum, view: View = "outsider") -> Release:
        """What a sum over all clients adds to a view: a Gaussian mechanism on a cohort that everybody knows."""
        return self._known(self.clients, self._seen(noisy.noise_multiplier, view))

    def _known(self, cohort: int, sigma: float) -> Release:
        """A Gaussian mechanism on a cohort that everybody knows, and in which all are that neighbours differ in."""
        return Release("known", self.clients, cohort, sigma / (self._exchanged * max(1, self.group)))

    def _seen(self, sigma: float, view: View) -> float:
        """The multiplier of the noise that an observer cannot subtract."""
        if self.honest is not None:
            return left_multiplier(sigma, self.honest, known=int(view == "client"))
        if view == "server" and self.noise == "split":
            return sigma / math.sqrt(2.0)
        return sigma * math.sqrt(2.0) if view != "server" and self.noise == "each_full" else sigma

    def turns(self, rounds: int) -> int:
        """In how many of the first rounds a client takes part at most."""
        return min(rounds, -(-rounds * self.cohort // self.clients)) if self.sampler == "cyclic" else rounds

    def release(self, view: View = "outsider", attempts: int = 1) -> Release:
        """What one round adds to a view.

        Args:
            attempts: how often noisy results of the same cohort have been released; more than one where a round was
                repeated after a crash. They are one mechanism with 1/sqrt(attempts) of the noise, on one sample.
        """
        once = self.effective_multiplier / math.sqrt(attempts)
        sigma = self._seen(once, view)
        if self.sampler == "cyclic":
            return self._known(self.cohort, sigma if self.noise == "clients" else self._seen(once, "server"))
        others = self.clients - 1 if view == "client" and self.sampler == "fixed" else self.clients
        if view == "server" or not self.amplified or (self.group and self.cohort >= others):
            return self._known(self.cohort, sigma)
        return Release(self.sampler, max(1, others), self.cohort, sigma / self._exchanged, min(self.group, others))

    def failing(self, rounds: int, sums: int = 0) -> float:
        """eta: bound on the probability that a truncation on shares, or a verdict on a lie, is wrong (docs/privacy.md).

        The noise's own mismatch counts as one, see (13) there.

        Args:
            rounds: releases of a round, each with what its cohort adds up besides.
            sums: releases of a sum over all clients.
        """
        # A Poisson sample above twice its expectation and a hundred has a probability below 1e-47 (Bernstein).
        most = self.cohort if self.sampler != "poisson" else min(self.clients, 2 * self.cohort + 100)
        each = 1 + sum(noisy.of_cohort for noisy in self.sums)
        off = math.expm1(min(rounds * self.mismatch, 1.0))
        truncations = _TRUNCATIONS * (rounds * each * (most + 1) + sums * (self.clients + 1))
        return _WRONG * truncations + rounds * self.lies + off

    def stated(self, accountant: Accountant, rounds: int, sums: int = 0) -> float:
        """Epsilon at `delta` of what was composed, as servers compute it: also if a truncation on shares goes wrong.

        Without that the run is (e, delta - eta)-private, with it (e - log(1 - eta), delta)-private.

        Args:
            rounds, sums: as in `failing`.
        """
        if self.accountant == "paper":  # which knows no arithmetic
            return accountant.epsilon(self.delta)
        eta = self.failing(rounds, sums)
        return accountant.epsilon(self.delta - eta) - math.log1p(-eta) if eta < self.delta else math.inf

    def epsilon(self, rounds: int, view: View = "outsider") -> float | None:
        """Epsilon after a number of rounds, and the sums; None where the accountant says nothing about the view.

        For a server `rounds` are those in which the client took part, all of them is the worst case; where clients take
        turns they are all rounds.
        """
        if self.accountant == "paper" and view != "outsider":
            return None
        accountant = self.new_accountant().compose(self.release(view), self.turns(rounds))
        released = [noisy.releases(rounds) for noisy in self.sums]
        for noisy, times in zip(self.sums, released, strict=True):
            accountant.compose(self.sum_release(noisy, view), times)
        return self.stated(accountant, self.turns(rounds), sum(released))
