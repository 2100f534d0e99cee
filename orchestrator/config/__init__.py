"""Settings: one frozen, validated tree, from layered presets, a YAML file and ``--set`` overrides."""

from orchestrator.config.sections import (
    ClientsConfig,
    Config,
    CsvConfig,
    DataConfig,
    EngineConfig,
    FederationConfig,
    GeneratorConfig,
    MethodConfig,
    ModelConfig,
    SyntheticConfig,
    load_config,
    preset_names,
    validated,
)

__all__ = [
    "ClientsConfig",
    "Config",
    "CsvConfig",
    "DataConfig",
    "EngineConfig",
    "FederationConfig",
    "GeneratorConfig",
    "MethodConfig",
    "ModelConfig",
    "SyntheticConfig",
    "load_config",
    "preset_names",
    "validated",
]
