"""The page: whole and harmless whatever a folder holds, and silent about what no epsilon covers."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from orchestrator import RunError
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.page.build import report, write_report
from orchestrator.page.record import Record
from orchestrator.privacy.statement import in_words
from orchestrator.reports.run import privacy_report
from tests.page.folders import DIGEST, SECRET_ACCURACY, make_run
from tests.page.pages import check

NOISE = ("method={name: fedavg, stateful: false}", "federation.rounds=3")
NOISE += ("privacy={clip_norm: 1, noise_multiplier: 1, epsilon_budget: 50}",)
HOSTILE = '<script>alert("1")</script>&\'"><svg onload=x>'


@pytest.fixture
def run(tiny, tmp_path):
    def make(*overrides: str, name: str = "run", **options) -> RunFolder:
        config = tiny(tmp_path, "federation.rounds=3", *overrides)
        return make_run(tmp_path / name, config, **options)

    return make


def page_of(*folders: RunFolder, exact_metrics: bool = False):
    return check(report([folder.path for folder in folders], exact_metrics))


def test_a_run_is_one_page_that_answers_who_reads_it(run):
    page = page_of(run("engine.name=embedded"))
    for words in (
        "One graph network was trained by f2gnn for 3 of 3 rounds with 6 clients of the graph synthetic, 3 a round",
        "above chance", "no differential privacy", "0.6180", "Nothing is promised.", "they must not collude",
        "the noisy model is the round's public result", "11.5 kB", "safegnn train", "None: every client that was drawn",
        "number of clients", "cohort of 3 without noise",
    ):  # fmt: skip
        assert words in page.words, words
    assert DIGEST in page.text and len(page.figures) > 9
    assert re.search(r"of group s = 1 8 10 13|nodes of group s = 1", page.words)


def test_rates_by_group_stand_beside_their_gap(run):
    folder = run(groups=("female", "male"), bias=0.2)
    facts = folder.records()[-1]["test"]["gaps"]["delta_eo"]
    words = page_of(folder).words
    assert "female (s = 0) nodes male (s = 1) nodes gap" in words
    assert f"{100 * facts['rate_s0']:.1f} % {facts['n_s0']} {100 * facts['rate_s1']:.1f} % {facts['n_s1']}" in words


@pytest.mark.parametrize("engine", ["embedded", "plaintext"])
def test_a_promise_is_quoted_word_for_word_and_its_limits_follow_from_the_settings(run, engine):
    folder = run(*NOISE, f"engine.name={engine}")
    config = RunFolder.open(folder.path)[1]
    [sentence, *rest] = in_words(privacy_report(folder, config))
    page = page_of(folder)
    assert sentence[1:] in page.words and all(line[1:] in page.words for line in rest)
    assert "a red box" not in page.words and ("This run protected nobody" in page.words) == (engine == "plaintext")
    assert "Metrics are exact (whole_graph)" in page.words and "no ledger counts them" in page.words
    assert "Features were scaled over all clients" not in page.words and "budget" in page.words
    assert ("Where one machine runs all processes" in page.words) == (engine == "embedded")
    assert any(
        figure["title"].startswith("ε over the rounds") and "budget: 50" in figure["desc"] for figure in page.figures
    )


def test_what_epsilon_does_not_cover_stands_nowhere_in_the_page_of_a_run_with_noise(run):
    folder = run(*NOISE, left_out={1: "reception: client 4 is too long"}, notes=("7 rows were dropped",))
    last = folder.records()[-1]
    test = last["test"]
    told = [
        f"{SECRET_ACCURACY:.3f}",
        "0.710",
        f"{test['delta_sp']:.3f}",
        DIGEST,
        "12345",
        "12,345",
        "7 rows",
        "too long",
    ]
    told += [f"{100 * test['gaps']['delta_sp']['rate_s0']:.1f} %", "2.47 s", "3.70 s", "24.6 ms"]
    page = page_of(folder)
    assert not [words for words in told if words in page.text]
    assert [figure["title"] for figure in page.figures] == [
        "ε over the rounds at δ = 1e-05, by who looks", "Seconds of a round by part, median",
    ]  # fmt: skip
    assert not re.search(r"(?<!another )(?<!of a )client [0-9]", page.text), "a cohort's member"
    for words in (
        "No metrics are shown.",
        "--exact-metrics",
        "Fingerprints of the data are not shown",
        "not said of a run",
    ):
        assert words in page.words, words
    assert "learning: not shown" in page.words and "above chance" not in page.words


def test_exact_metrics_are_shown_where_they_are_asked_for_and_marked(run):
    folder = run(*NOISE, left_out={1: "reception: too long"})
    page = page_of(folder, exact_metrics=True)
    assert "0.6180" in page.words and "Exact metrics beside noise." in page.words
    assert DIGEST not in page.source and "too long" not in page.source  # metrics were asked for, and nothing else


def test_metrics_that_epsilon_covers_are_shown(run):
    own = ("evaluation={where: clients, tables: summed, exact_beside_noise: false}", "data.scaling=by_client")
    page = page_of(run(*NOISE, *own))
    assert "0.6180" in page.words and "No metrics are shown" not in page.words and DIGEST not in page.source


def test_noise_without_an_epsilon_is_no_promise(run):
    page = page_of(run("privacy={clip_norm: 1, noise_multiplier: 1, accountant: null}"))
    assert "Nothing is promised. No epsilon is stated: none was asked for (privacy.accountant)." in page.words


def test_a_model_of_one_class_is_named_as_that(run):
    page = page_of(run(constant=True))
    assert "one class for every node" in page.words and "! not told from chance" in page.words
    assert "gaps of such a model mean little" in page.words


def test_uploads_without_a_part_are_counted_with_reason_and_client(run):
    folder = run(left_out={0: "reception: longer than the clip bound"})
    whose = sorted({row["left_out"][0]["client"] for row in folder.records()})
    page = page_of(folder)
    listed = f"client{'s' if len(whose) > 1 else ''} {', '.join(map(str, whose))}"
    assert f"reception: longer than the clip bound 3 {listed}" in page.words
    assert "3 uploads had no part in their round" in page.words


def test_text_from_outside_is_no_markup(tiny, tmp_path):
    config = tiny(tmp_path, "federation.rounds=3", f"data.dir={json.dumps('/' + HOSTILE)}")
    folder = make_run(
        tmp_path / HOSTILE.replace("/", "_"), config, left_out={0: HOSTILE}, notes=(HOSTILE,), groups=(HOSTILE, HOSTILE)
    )
    page = page_of(folder)
    assert page.text.count(HOSTILE) >= 4 and HOSTILE not in page.source
    other = make_run(tmp_path / "b", config.changed(seed=5, data={"dir": "/" + HOSTILE + HOSTILE}))
    named = page_of(folder, other)  # runs are named by what differs
    assert HOSTILE in named.text and any(HOSTILE in figure["desc"] for figure in named.figures)


FILES = ("metrics.jsonl", "metrics.csv", "costs.csv", "inputs.json", "data.json", "clients.json", "environment.json")


@pytest.mark.parametrize("damage", ["missing", "damaged"])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("noise", [(), NOISE], ids=["plain", "noise"])
def test_a_folder_that_lacks_a_part_has_a_page(run, file, damage, noise):
    path = run(*noise).path / file
    if damage == "missing":
        path.unlink(missing_ok=True)
    elif path.exists():
        path.write_bytes(b'{"half')
    page = page_of(RunFolder(path.parent))
    if damage == "damaged" and file not in ("metrics.csv", *(("clients.json",) if noise else ())):
        assert file in page.words.split("7 Warnings", 2)[-1]


def test_a_run_with_noise_whose_account_is_lost_promises_nothing(run):
    folder = run(*NOISE)
    (folder.state_dir / "privacy.json").unlink()
    page = page_of(folder)
    assert "Nothing is promised." in page.words and "holds no account of what it released" in page.words
    assert "The sentence to quote" not in page.words


def test_a_run_without_rounds_and_one_that_was_interrupted_have_pages(run):
    assert "no round was completed" in page_of(run(rounds=0)).words
    assert "2 of 3 rounds are completed" in page_of(run(rounds=2, name="half")).words
    assert "no round was completed" in page_of(run(*NOISE, rounds=0, name="noise")).words.lower()


@pytest.mark.parametrize(
    "overrides",
    [
        ("evaluation.where=nowhere",),
        ("method.name=local", "evaluation.where=clients"),
        ("method.name=fedpub", "model.name=gcn-classifier", "evaluation.where=clients", "engine.name=embedded"),
        ("engine={name: embedded, preprocessing: dealer}", "federation.clients=untrusted", "privacy.clip_norm=1"),
        ("engine={name: masking, program: assisted}", "method.name=fedavg"),
    ],
)
def test_every_kind_of_run_has_a_page(run, overrides):
    page_of(run(*overrides))


def test_data_without_groups_have_a_page_without_gaps(run):
    folder = run()
    rows = folder.records()
    for row in rows:
        for mask in ("val", "test"):
            kept = {k: v for k, v in row[mask].items() if not k.startswith("delta_")}
            row[mask] = {**kept, "gaps": {}, "counts": {"nodes": 200, "positives": 90}}
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.save_clients([{"nodes": 3, "edges": 2, "train_nodes": 1, "balance": None}] * 6)
    page = page_of(folder)
    assert "ΔSP against" not in page.words and "Rates by group" not in page.words


def test_a_folder_that_is_no_run_is_refused_in_one_line_and_no_file_is_left(run, tmp_path):
    with pytest.raises(RunError, match="no run folder"):
        write_report([tmp_path / "none"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(RunError, match="cannot be written"):
        write_report([run().path], tmp_path / "none" / "page.html")


def test_runs_of_several_methods_are_compared_seed_by_seed(run):
    runs = [
        run(f"method.name={method}", f"seed={seed}", name=f"{method}-{seed}", bias=bias)
        for method, bias in (("fairdual", 0.0), ("fedavg", 0.29))
        for seed in (1, 2, 3)
    ]
    page = page_of(*runs)
    assert "✓ fairdual: fairer than fedavg by ΔSP" in page.words or "not told from fedavg's" in page.words
    assert "fedavg (baseline) 3" in page.words and "pairs so" in page.words
    assert any(figure["title"].startswith("Difference in ΔSP to fedavg") for figure in page.figures)
    other = run("method.name=fairdual", "seed=4", name="other", graph="0" * 64)
    alone = run("method.name=fedavg", "seed=4", name="alone")
    page = page_of(*runs, other, alone)
    assert "No differences are stated: the runs of seed 4 are of different data or clients" in page.words
    assert "fairer than" not in page.words


def test_a_record_hides_what_it_was_not_asked_for(run):
    folder = run(*NOISE, left_out={0: "x"})
    record = Record.read(folder.path)
    assert record.data is record.clients is None and record.who == {} and record.series("test", "auc") == []
    assert all({"val", "test", "left_out", "cohort"}.isdisjoint(row) for row in record.rounds)
    shutil.rmtree(folder.path)
