"""One set of properties that every accountant keeps, and the figures that each must reproduce."""

from __future__ import annotations

import json
import math

import pytest

from orchestrator.errors import ConfigError, RunError
from orchestrator.privacy.accountant import (
    ACCOUNTANTS,
    Accountant,
    PaperAccountant,
    PldAccountant,
    RdpAccountant,
    Release,
)

DELTA = 1e-3


def pytest_generate_tests(metafunc):
    """The shared tests run with every sampler that the accountant knows."""
    shared = getattr(AccountantProperties, metafunc.function.__name__, None)
    if "sampler" in metafunc.fixturenames and (shared or metafunc.function.__name__.endswith("table_2")):
        metafunc.parametrize("sampler", metafunc.cls.samplers)


class AccountantProperties:
    """What holds for every accountant; subclasses name one and the samplers that it knows."""

    kind: type[Accountant]
    samplers: tuple[str, ...]

    def epsilon(self, sampler, sigma=1.341, cohort=3, rounds=10, delta=DELTA) -> float:
        return self.kind().compose(Release(sampler, 30, cohort, sigma), rounds).epsilon(delta)

    def test_it_is_found_by_its_name(self):
        assert ACCOUNTANTS[self.kind.name] is self.kind and self.kind.conversion

    def test_epsilon_grows_with_the_number_of_rounds(self, sampler):
        values = [self.epsilon(sampler, rounds=rounds) for rounds in (0, 1, 2, 10, 100)]
        assert values[0] == 0.0 and values == sorted(set(values))

    def test_epsilon_falls_with_the_noise(self, sampler):
        values = [self.epsilon(sampler, sigma=sigma) for sigma in (4.0, 2.0, 1.341, 1.0, 0.5)]
        assert values == sorted(set(values))

    def test_epsilon_grows_with_the_cohort(self, sampler):
        values = [self.epsilon(sampler, cohort=cohort) for cohort in (1, 3, 6, 10)]
        assert values == sorted(values) and (len(set(values)) == 4 or sampler == "known")

    def test_epsilon_falls_with_delta(self, sampler):
        assert self.epsilon(sampler, delta=1e-2) < self.epsilon(sampler, delta=1e-5)

    def test_everybody_in_the_cohort_is_no_sampling(self, sampler):
        assert self.epsilon(sampler, cohort=30) == pytest.approx(self.epsilon("known"), rel=1e-9)

    def test_no_noise_is_no_privacy(self, sampler):
        assert self.epsilon(sampler, sigma=0.0) == math.inf
        assert self.epsilon(sampler, sigma=0.0, rounds=0) == 0.0

    def test_composition_adds_up_in_any_order(self, sampler):
        first, second = Release(sampler, 30, 3, 1.341), Release(sampler, 30, 3, 2.0)
        together = self.kind().compose(first, 7).compose(second, 3)
        interleaved = self.kind().compose(second).compose(first, 3).compose(second, 2).compose(first, 4)
        assert together.epsilon(DELTA) == interleaved.epsilon(DELTA) > self.kind().compose(first, 7).epsilon(DELTA)
        assert together.epsilon(DELTA) < self.kind().compose(first, 10).epsilon(DELTA)

    def test_nothing_is_taken_back(self, sampler):
        with pytest.raises(ValueError, match="Expected count=-1 >= 0"):
            self.kind().compose(Release(sampler, 30, 3, 1.0), -1)

    def test_a_copy_is_independent(self, sampler):
        accountant = self.kind().compose(Release(sampler, 30, 3, 1.341), 5)
        more = accountant.copy().compose(Release(sampler, 30, 3, 1.341))
        assert accountant.epsilon(DELTA) == self.epsilon(sampler, rounds=5) < more.epsilon(DELTA)

    def test_state_is_json_and_comes_back(self, sampler):
        accountant = self.kind().compose(Release(sampler, 30, 3, 1.341), 5).compose(Release(sampler, 30, 3, 0.9), 2)
        state = json.loads(json.dumps(accountant.state()))
        restored = self.kind().restore(state)
        assert restored.state() == state and restored.epsilon(DELTA) == accountant.epsilon(DELTA)
        more = Release(sampler, 30, 3, 1.341)
        assert restored.compose(more).epsilon(DELTA) == accountant.compose(more).epsilon(DELTA)

    @pytest.mark.parametrize(
        "state",
        [
            {},
            {"accountant": "none", "ledger": []},
            {"ledger": [{"count": 1}]},
            {"ledger": [{"sampler": "known", "clients": 3, "cohort": 1, "noise_multiplier": 1.0, "count": -1}]},
            {"ledger": [{"sampler": "known", "clients": 3, "cohort": 1, "noise_multiplier": 1.0}]},
            {"ledger": 5},
        ],
    )
    def test_other_states_are_refused_in_one_line(self, state):
        with pytest.raises(RunError) as caught:
            self.kind().restore({"accountant": self.kind.name, **state} if state else state)
        assert "\n" not in str(caught.value)


class TestRdp(AccountantProperties):
    kind, samplers = RdpAccountant, ("fixed", "poisson", "known")

    @pytest.mark.parametrize(
        ("sampler", "rounds", "delta", "epsilon"),
        [
            ("poisson", 500, 1e-2, 6.743),
            ("poisson", 500, 1e-3, 8.346),
            ("poisson", 500, 1e-5, 10.825),
            ("poisson", 1, 1e-3, 0.614),
            ("fixed", 500, 1e-2, 17.879),
            ("fixed", 500, 1e-3, 20.181),
            ("fixed", 500, 1e-5, 24.786),
            ("fixed", 1, 1e-3, 0.730),
            ("known", 500, 1e-2, 187.15),
            ("known", 500, 1e-3, 198.66),
            ("known", 500, 1e-5, 216.76),
            ("known", 1, 1e-3, 2.483),
        ],
    )
    def test_golden_figures(self, sampler, rounds, delta, epsilon):
        assert self.epsilon(sampler, rounds=rounds, delta=delta) == pytest.approx(
            epsilon, abs=0.006 if epsilon > 99 else 6e-4
        )

    def test_it_says_nothing_beside_its_result(self, capfd):
        self.epsilon("poisson", sigma=1.3417)
        assert capfd.readouterr() == ("", "")


class TestPld(AccountantProperties):
    kind, samplers = PldAccountant, ("poisson", "known")

    @pytest.mark.parametrize(
        ("rounds", "delta", "epsilon"),
        [(500, 1e-2, 5.680), (500, 1e-3, 7.341), (500, 1e-5, 9.963), (1, 1e-3, 0.321)],
    )
    def test_golden_figures(self, rounds, delta, epsilon):
        assert self.epsilon("poisson", rounds=rounds, delta=delta) == pytest.approx(epsilon, abs=6e-4)

    def test_cohorts_of_fixed_size_are_refused(self):
        with pytest.raises(
            ConfigError, match="accountant pld: there is no privacy loss distribution for cohorts of fixed"
        ):
            self.epsilon("fixed")

    @pytest.mark.parametrize("rounds", [1, 50])
    def test_it_is_tighter_than_rdp(self, rounds):
        release = Release("poisson", 1000, 100, 1.5)
        rdp = RdpAccountant().compose(release, rounds).epsilon(1e-5)
        assert 0.5 * rdp < PldAccountant().compose(release, rounds).epsilon(1e-5) < rdp


class TestPaper(AccountantProperties):
    """Not valid for what it is used for, but it must be what the paper did."""

    kind, samplers = PaperAccountant, ("fixed", "poisson")

    def test_everybody_in_the_cohort_is_no_sampling(self, sampler):
        assert self.epsilon(sampler, cohort=30) > self.epsilon(sampler, cohort=29)

    @pytest.mark.parametrize(
        ("sigma", "rounds", "epsilon"),
        [
            (1.341, 1, "1.0"),
            (1.341, 500, "9.43"),
            (0.03166, 1, "1000"),
            (0.03166, 500, "4.97e+05"),
            (0.001, 1, "1e+06"),
            (0.001, 500, "5e+08"),
        ],
    )
    def test_golden_figures_to_the_digits_of_table_2(self, sampler, sigma, rounds, epsilon):
        digits = {"1.0": 2, "1000": 3}.get(epsilon, 3)
        assert float(f"{self.epsilon(sampler, sigma=sigma, rounds=rounds):.{digits}g}") == float(epsilon)

    def test_it_says_what_is_wrong_with_it(self):
        assert "comparison only" in PaperAccountant.fault and "Poisson" in PaperAccountant.fault


@pytest.mark.parametrize("rounds", [1, 100])
def test_two_releases_of_one_sample_are_one_with_less_noise(rounds):
    """Against dp-accounting's own account of two Gaussians inside one sample."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant as Rdp

    event = PoissonSampledDpEvent(0.1, SelfComposedDpEvent(GaussianDpEvent(2.0), 2))
    expected = Rdp(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event, rounds).get_epsilon(1e-5)
    own = RdpAccountant().compose(Release("poisson", 30, 3, 2.0 / math.sqrt(2)), rounds).epsilon(1e-5)
    assert own == pytest.approx(expected, rel=1e-9)
    assert own > RdpAccountant().compose(Release("poisson", 30, 3, 2.0), 2 * rounds).epsilon(1e-5)
