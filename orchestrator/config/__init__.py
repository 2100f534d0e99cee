"""Settings: one frozen, validated tree, from layered presets, a YAML file and ``--set`` overrides."""

from orchestrator.config.layers import load_config, preset_names
from orchestrator.config.method import DEFAULT_METHOD, MethodSettings, settings_class
from orchestrator.config.sections import (
    ClientsConfig,
    CsvConfig,
    DataConfig,
    EngineConfig,
    FederationConfig,
    ModelConfig,
    Section,
    SyntheticConfig,
)
from orchestrator.config.tree import Config, validated

__all__ = [
    "DEFAULT_METHOD",
    "ClientsConfig",
    "Config",
    "CsvConfig",
    "DataConfig",
    "EngineConfig",
    "FederationConfig",
    "MethodSettings",
    "ModelConfig",
    "Section",
    "SyntheticConfig",
    "load_config",
    "preset_names",
    "settings_class",
    "validated",
]
