# `make help` lists the targets. Everything is installed into .venv; nothing else on the machine changes.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PRESET ?= pokec-n

.PHONY: help demo test lint bench mpc clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

demo: $(READY)  ## train FedAvg and a fair method over secret shares, and show what becomes of the gaps
	$(BIN)/safegnn reproduce fairness --preset demo --arms fairdual --seeds 2 --engine embedded

test: $(READY)  ## all tests, on two cores
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope

lint: $(READY)  ## style, who may import whom, and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: $(READY)  ## wall time of 500 rounds and what secret sharing adds; one aggregation by size, and over a slow line
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/delay.py

mpc: $(READY)  ## compile the round's programs for MP-SPDZ, which you have installed; PRESET=pokec-n
	$(BIN)/safegnn mpc --preset $(PRESET)

clean:  ## remove the virtual environment
	rm -rf .venv

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,tensorboard]'
	@touch $(READY)
