"""Settings of one's own files, and of what their columns mean; the latter also for tables in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from orchestrator.section import Section

__all__ = ["ColumnsConfig", "FilesConfig"]


def _number_as_text(value: Any) -> Any:
    """Cells of a table are text, and 1 in YAML is a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Cell = Annotated[str, BeforeValidator(_number_as_text)]


def _one_as_several(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


_Cells = Annotated[tuple[_Cell, ...], BeforeValidator(_one_as_several)]


class ColumnsConfig(Section):
    """What the columns of a table of nodes and of one of edges mean."""

    id: str | None = Field(None, description="column of the node id; null: rows are counted from 0, or the graph's own")
    label: str | None = Field(description="column of the label; an empty one is unknown")
    positive: _Cells | None = Field(
        None, description="value or values of the label that are class 1, all others are 0; null: labels are 0 and 1"
    )
    label_values: tuple[_Cell, ...] | None = Field(
        None, description="instead of positive, for more than two classes: the label's values in the order of numbers"
    )
    missing_label: _Cell | None = Field(None, description="the label that means 'unknown', beside empty ones")
    sensitive: str | None = Field(None, description="column of the sensitive attribute; null: there is none")
    protected: _Cells | None = Field(
        None, description="value or values of it that are group 1, all others are 0; null: they are 0 and 1"
    )
    sensitive_values: tuple[_Cell, _Cell] | None = Field(
        None, description="instead of protected: its only two values, of which the second is group 1"
    )
    client: str | None = Field(None, description="column that says whose node it is, for clients.partition: given")
    split: str | None = Field(None, description="column that says which nodes are for training, validation and test")
    split_values: tuple[_Cell, _Cell, _Cell] | None = Field(
        None, description="what that column says of the three; null: train, val and test; empty: in none"
    )
    features: tuple[str, ...] | None = Field(
        None, description="columns that are features; null: all that mean nothing else"
    )
    drop: tuple[str, ...] = Field((), description="columns that are no features")
    one_hot: tuple[str, ...] = Field((), description="columns of text of which every value becomes a feature of 0 or 1")
    impute: Literal["mean", "median", "zero"] | None = Field(
        None,
        description="what numbers that are missing become: mean or median of the column, at each client of its own "
        "where clients are given; null: they are refused",
    )
    missing: tuple[_Cell, ...] = Field(
        ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-"),
        description="what stands in a feature where its number is missing",
    )
    source: str | None = Field(None, description="column of the edges' one end; null: the first")
    target: str | None = Field(None, description="column of the other end; null: the second")
    edge_attributes: Literal["refuse", "ignore"] = Field(
        "refuse", description="what is done with weights and other columns of edges, which no network here sees"
    )
    unknown_ends: Literal["refuse", "skip"] = Field(
        "refuse", description="what is done with edges to ids that no node has; skip: left out and counted"
    )

    @model_validator(mode="after")
    def _values_fit(self) -> ColumnsConfig:
        if self.positive is not None and self.label_values is not None:
            raise ValueError("data.files.positive and label_values both say what labels mean; give one of the two")
        if self.label_values is not None and not 2 <= len(set(self.label_values)) == len(self.label_values) <= 128:
            raise ValueError(f"data.files.label_values: expected 2 to 128 different values, got {self.label_values}")
        if self.protected is not None and self.sensitive is None:
            raise ValueError("data.files.protected: of which column? data.files.sensitive must name it")
        if self.protected is not None and self.sensitive_values is not None:
            raise ValueError("data.files.protected and sensitive_values both say what groups are; give one of the two")
        if self.sensitive_values is not None and (self.sensitive is None or len(set(self.sensitive_values)) < 2):
            raise ValueError("data.files.sensitive_values: expected two values of the column data.files.sensitive")
        if self.split_values is not None and self.split is None:
            raise ValueError("data.files.split_values: of which column? data.files.split must name it")
        return self


class FilesConfig(ColumnsConfig):
    """Files of one's own (``data.name: files``); see docs/own-graph.md."""

    nodes: Path = Field(
        description="table of nodes with a header, a row a node: .csv, .tsv, .txt, .parquet; or a graph: .npz, .pt of "
        "PyTorch Geometric, .graphml"
    )
    label: str = Field(description="column of the label; an empty one is unknown")
    edges: Path | None = Field(
        None, description="list of edges, two node ids a line: .csv, .tsv, .txt, .parquet; null: nodes is a graph"
    )
    client_folders: bool = Field(
        False, description="every folder in data.dir that holds such files is a client, named after the folder"
    )
    encoding: str = Field("utf-8", description="of text, e.g. latin-1, cp1252, utf-16")
    decimal: Literal[".", ","] = Field(".", description="decimal point of the numbers in text")

    @model_validator(mode="after")
    def _one_way_to_name_clients(self) -> FilesConfig:
        if self.client is not None and self.client_folders:
            raise ValueError("data.files.client: with client_folders the folder says whose node it is; give one")
        return self
