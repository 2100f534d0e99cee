"""The whole tree of settings, and what has to fit across its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from orchestrator.config.faults import in_one_line
from orchestrator.config.merging import lay
from orchestrator.config.method import DEFAULT_METHOD, MethodSettings, settings_class
from orchestrator.config.sections import (
    ClientsConfig,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    FederationConfig,
    ModelConfig,
    PrivacyConfig,
    RunConfig,
    SharingConfig,
)
from orchestrator.errors import ConfigError
from orchestrator.registry import METHODS
from orchestrator.section import Section
from orchestrator.yaml_text import dump

__all__ = ["Config", "validated"]


def _method(value: Any) -> MethodSettings:
    """The settings of the method that these name, by its own class."""
    if not isinstance(value, Mapping | MethodSettings):
        raise ValueError(f"expected settings by name, e.g. {{name: {DEFAULT_METHOD}}}, got {value!r}")
    given = {"name": DEFAULT_METHOD, **dict(value)}
    if not isinstance(given["name"], str) or given["name"] not in METHODS:
        raise ValueError(f"method.name: expected one of {', '.join(METHODS)}, got {given['name']!r}")
    return settings_class(given["name"]).model_validate(given)


class Config(Section):
    """The whole tree."""

    seed: int = Field(
        31,
        ge=0,
        lt=2**63,
        description="what all reproducible randomness derives from: graph, split, clients, cohorts, training; secrets, "
        "masks and the noise of privacy do not, nor with that noise cohorts and training",
    )
    data: DataConfig = DataConfig()
    clients: ClientsConfig = ClientsConfig()
    model: ModelConfig = ModelConfig()
    method: SerializeAsAny[MethodSettings] = Field(default_factory=lambda: _method({}))
    federation: FederationConfig = FederationConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    sharing: SharingConfig = SharingConfig()
    engine: EngineConfig = EngineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    @field_validator("method", mode="before")
    @classmethod
    def _method_by_its_own_class(cls, value: Any) -> MethodSettings:
        return _method(value)

    @model_validator(mode="after")
    def _cohort_fits(self) -> Config:
        if self.federation.sampling != "with_replacement" and self.federation.cohort > self.clients.count:
            raise ValueError(
                f"federation.cohort = {self.federation.cohort} is larger than clients.count = {self.clients.count}"
            )
        return self

    @model_validator(mode="after")
    def _clients_are_given(self) -> Config:
        """Who says whose each node is means these clients; one that holds all is for comparison."""
        files = self.data.files if self.data.name == "files" else None
        said = files is not None and (files.client is not None or files.client_folders)
        if self.clients.partition == "given" and not said:
            raise ValueError(
                "clients.partition = given: data.files.client must name the column that says whose each node is, or "
                "data.files.client_folders be true"
            )
        if said and self.clients.partition not in ("given", "whole"):
            raise ValueError(
                f"clients.partition = {self.clients.partition}: data.files says whose each node is; set it to given"
            )
        return self

    @model_validator(mode="after")
    def _method_fits(self) -> Config:
        name, method = self.method.name, METHODS[self.method.name]
        if method.networks and self.model.name not in method.networks:
            raise ValueError(
                f"model.name = {self.model.name}: method.name = {name} trains {' or '.join(method.networks)} only"
            )
        if method.rule is None and (self.privacy.noise_multiplier > 0 or self.privacy.clip_norm is not None):
            raise ValueError(f"method.name = {name} releases nothing: leave privacy.clip_norm and noise_multiplier out")
        if method.personal:
            if self.evaluation.where == "whole_graph":
                raise ValueError(f"method.name = {name} makes no global model: set evaluation.where to clients")
            if self.federation.sampling == "with_replacement":
                raise ValueError(
                    f"federation.sampling = with_replacement: with method.name = {name} clients are distinct"
                )
        return self

    @model_validator(mode="after")
    def _privacy_fits_the_sampling(self) -> Config:
        privacy, sampling = self.privacy, self.federation.sampling
        if sampling == "with_replacement":
            if privacy.epsilon_budget is not None:
                raise ValueError(
                    "privacy.epsilon_budget: no accountant is valid for federation.sampling = with_replacement"
                )
            if privacy.sensitivity == "bounded_weights" and privacy.noise_multiplier > 0:
                raise ValueError(
                    "privacy.sensitivity = bounded_weights is not proven for federation.sampling = with_replacement, "
                    "where one client may hold several places"
                )
        between = self.clients.count // self.federation.cohort
        if (privacy.bands or 1) > 1 and (sampling != "cyclic" or (privacy.bands or 1) > between):
            raise ValueError(
                f"privacy.bands = {privacy.bands}: noise of several rounds hides a client that is in one of them; "
                f"expected at most clients.count / federation.cohort = {between}, with federation.sampling = cyclic"
            )
        if (privacy.bands or 1) > 1 and privacy.clip == "quantile":
            raise ValueError(
                f"privacy.bands = {privacy.bands}: noise of several rounds needs one bound for all; expected "
                "privacy.clip = fixed"
            )
        if sampling == "poisson" and self.federation.min_cohort and privacy.noise_multiplier > 0:
            raise ValueError(
                f"federation.min_cohort = {self.federation.min_cohort}: with federation.sampling = poisson and noise "
                "every cohort's round is released, however small; whether one is would show who takes part"
            )
        return self

    def changed(self, **sections: Any) -> Config:
        """These settings with a layer upon them, checked again as a whole.

        Args:
            sections: by name of a section, the settings in it that change; or the seed. Another method takes over those
                settings of the present one that it knows.

        Raises:
            ConfigError: the result does not fit together, naming each setting at fault.
        """
        tree = self.model_dump()
        lay(tree, sections)
        return validated(tree)

    def to_yaml(self) -> str:
        """The whole tree as text that `load_config` reads back as the same configuration."""
        return dump(self.model_dump(mode="json"))


def validated(tree: Mapping[str, Any]) -> Config:
    """The configuration that a tree of plain values describes. Raises ConfigError naming each setting at fault."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(in_one_line(error, Config, tree)) from None
