"""Settings: one frozen, validated tree, from layered presets, a YAML file and ``--set`` overrides."""

from orchestrator.config.layers import load_config, merged_layers, preset_names, preset_summaries
from orchestrator.config.merging import lay
from orchestrator.config.method import DEFAULT_METHOD, MethodSettings, settings_class
from orchestrator.config.own_files import ColumnsConfig, FilesConfig
from orchestrator.config.sections import (
    ClientsConfig,
    DataConfig,
    EngineConfig,
    FederationConfig,
    ModelConfig,
    SyntheticConfig,
)
from orchestrator.config.tree import Config, validated
from orchestrator.section import Section

__all__ = [
    "DEFAULT_METHOD",
    "ClientsConfig",
    "ColumnsConfig",
    "Config",
    "DataConfig",
    "EngineConfig",
    "FederationConfig",
    "FilesConfig",
    "MethodSettings",
    "ModelConfig",
    "Section",
    "SyntheticConfig",
    "lay",
    "load_config",
    "merged_layers",
    "preset_names",
    "preset_summaries",
    "settings_class",
    "validated",
]
