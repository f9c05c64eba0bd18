"""Fine-tuning of the biLM. Oracles: perplexity measured separately; an uninterrupted run."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import elmore
from elmore.bilm.language_model import LanguageModel
from elmore.checkpoint.hdf5 import read_hdf5, write_hdf5
from elmore.checkpoint.language_model import read_language_model
from elmore.errors import InputError
from elmore.pretrain.config import PretrainConfig
from elmore.pretrain.finetune import finetune, read_finetune_config
from elmore.pretrain.perplexity import measure_perplexity
from elmore.pretrain.run import pretrain
from elmore.signals import InterruptedRunError
from elmore.training.run_folder import Report
from tests.oracles.releases import VARIANTS, write_release

CHANGES = [
    "training.streams=4", "training.window=5", "training.negatives=20", "training.epochs=3",
    "training.lr=0.01", "run.evaluations=6", "run.heldout=0.1", "text.tokenizer=whitespace",
    "text.sentences=lines", "vocabulary.min_count=1",
]  # fmt: skip


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    path = tmp_path / "domain.txt"
    path.write_text("\n".join(f"us sees {a} aunt {b} it ." for a in "abcd" for b in "wxyz") + "\n")
    path.write_text(path.read_text() * 4)
    return path


def run(
    model: Path, domain: Path, output: Path, *changes: str, **more: object
) -> tuple[dict, list]:
    records: list[dict] = []
    summary = finetune(
        model, [domain], output, read_finetune_config([*CHANGES, *changes]), device="cpu",
        cache=output.parent / "c", workers=1, report=records.append, **more,
    )  # fmt: skip
    return summary, records


def test_finetuning_lowers_the_perplexity_of_the_domain(
    domain: Path, tmp_path: Path, complete_run: Path
) -> None:
    heldout = tmp_path / "heldout.txt"
    heldout.write_text("us sees a aunt z it .\nus sees d aunt w it .\n")
    summary, _ = run(complete_run, domain, tmp_path / "tuned", "training.epochs=5", heldout=heldout)
    assert summary["heldout"]["average"] < 0.5 * summary["before"]["average"]
    sentences = [line.split() for line in heldout.read_text().splitlines()]
    base, tuned = (read_language_model(path) for path in (complete_run, tmp_path / "tuned"))
    for (model, vocabulary, *_), when in ((base, "before"), (tuned, "heldout")):
        actual = measure_perplexity(model, vocabulary, sentences)
        assert actual.average == pytest.approx(summary[when]["average"], rel=1e-4)
    assert list(base.vocabulary) == list(tuned.vocabulary)
    assert tuned.provenance["model"]["steps"] > 0


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_weights_without_softmax_are_finetuned_and_written_as_hdf5(
    domain: Path, tmp_path: Path, optimizer: str
) -> None:
    release = write_release(tmp_path / "r", VARIANTS["usual"])
    before = elmore.load(release.weights_file).bilm.state_dict()
    changes = f"training.optimizer={optimizer}"
    summary, records = run(release.weights_file, domain, tmp_path / "tuned", changes)
    notes = [record["note"] for record in records if "note" in record]
    assert "these weights have no softmax" in notes[0]
    assert summary["heldout"]["average"] <= summary["before"]["average"]
    tuned = read_language_model(tmp_path / "tuned").model.bilm
    assert any(not torch.equal(tuned.state_dict()[name], before[name]) for name in before)
    write_hdf5(tuned, tmp_path / "w.hdf5", tmp_path / "options.json")
    reread = read_hdf5(tmp_path / "w.hdf5", tmp_path / "options.json")
    for name, value in tuned.state_dict().items():
        torch.testing.assert_close(reread.state_dict()[name], value)


def test_early_stopping_keeps_the_best_weights(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    """Training on one repeated sentence overfits, which must not make held-out perplexity worse."""
    more_epochs = replace(config, training=replace(config.training, epochs=4.0))
    pretrain([text], tmp_path / "base", more_epochs, cache=tmp_path / "c", workers=1, device="cpu")
    (tmp_path / "repeated.txt").write_text("\n".join(["them them us us them ."] * 20))
    (tmp_path / "heldout.txt").write_text(
        "the cat sees it .\na dog likes us .\nmy aunt sees us .\n"
    )
    summary, _ = run(
        tmp_path / "base", tmp_path / "repeated.txt", tmp_path / "tuned", "run.patience=2",
        "training.epochs=40", "run.evaluations=20", heldout=tmp_path / "heldout.txt",
    )  # fmt: skip
    assert summary["heldout"]["average"] <= summary["before"]["average"]
    assert summary["steps"] < 40 * 20 * 7 / 20


@pytest.mark.parametrize(("has_softmax", "stops"), [(True, [2]), (False, [2, 5])])
def test_resumed_run_equals_an_uninterrupted_one(
    domain: Path, tmp_path: Path, complete_run: Path, has_softmax: bool, stops: list[int]
) -> None:
    """The run is interrupted by a real signal, without a softmax in either phase.

    Weights are compared bit for bit.
    """
    model = complete_run
    if not has_softmax:
        model = write_release(tmp_path / "r", VARIANTS["usual"]).weights_file
    settings = read_finetune_config([*CHANGES, "run.log_steps=5"])

    def tune(output: Path, report: Report, *, resume: bool = False) -> LanguageModel:
        finetune(
            model, [domain], output, settings, resume=resume, device="cpu", workers=1,
            cache=tmp_path / "c", report=report,
        )  # fmt: skip
        return read_language_model(output).model

    def interrupt_after(count: int) -> Report:
        seen: list[dict[str, object]] = []

        def report(record: dict[str, object]) -> None:
            seen.append(record)
            if len(seen) > count and "loss" in record:
                signal.raise_signal(signal.SIGTERM)

        return report

    uninterrupted = tune(tmp_path / "uninterrupted", lambda _: None)
    for stop in stops:
        folder = tmp_path / f"{stop}"
        with pytest.raises(InterruptedRunError):
            tune(folder, interrupt_after(stop))
        with pytest.raises(InputError, match="exists already"):
            tune(folder, lambda _: None)
        resumed = tune(folder, lambda _: None, resume=True)
        for name, value in uninterrupted.state_dict().items():
            assert torch.equal(resumed.state_dict()[name], value), name
        assert not (folder / "softmax").exists()
        assert not (folder / "checkpoints").exists()


def test_another_starting_model_is_refused_on_resume(
    text: Path, domain: Path, tmp_path: Path, config: PretrainConfig, complete_run: Path
) -> None:
    seeded = replace(config, training=replace(config.training, seed=1))
    pretrain([text], tmp_path / "other", seeded, cache=tmp_path / "c", workers=1, device="cpu")

    def interrupt(record: dict) -> None:
        if "loss" in record:
            signal.raise_signal(signal.SIGTERM)

    settings = read_finetune_config([*CHANGES, "run.log_steps=5"])
    common = {"device": "cpu", "workers": 1, "cache": tmp_path / "c"}
    with pytest.raises(InterruptedRunError):
        finetune(complete_run, [domain], tmp_path / "tuned", settings, report=interrupt, **common)
    with pytest.raises(InputError, match="belongs to another run: its start was"):
        finetune(tmp_path / "other", [domain], tmp_path / "tuned", settings, resume=True, **common)


def test_language_of_the_new_text_is_recorded(
    domain: Path, tmp_path: Path, complete_run: Path
) -> None:
    changes = ("text.tokenizer=moses", "text.language=de", "training.epochs=1")
    with pytest.warns(UserWarning, match="with moses for de, results may be worse"):
        run(complete_run, domain, tmp_path / "de", *changes)
    assert elmore.load(complete_run).language == "en"
    assert elmore.load(tmp_path / "de").language == "de"


def test_text_outside_the_vocabulary_is_reported(tmp_path: Path, complete_run: Path) -> None:
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("".join(f"zq{i} zr{i} zs{i} zt{i}\n" for i in range(80)))
    _, records = run(complete_run, foreign, tmp_path / "tuned")
    [note] = [r["note"] for r in records if "vocabulary" in r.get("note", "")]
    assert note.startswith("100% of the held-out words are not in the vocabulary")


def test_invalid_requests_are_rejected(domain: Path, tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", VARIANTS["usual"])
    (tmp_path / "existing").mkdir()
    (tmp_path / "existing" / "x").touch()
    with pytest.raises(InputError, match="exists already"):
        run(release.weights_file, domain, tmp_path / "existing")
    with pytest.raises(InputError, match="no such model"):
        run(tmp_path / "none", domain, tmp_path / "out")
    with pytest.raises(InputError, match="max_minutes must be positive"):
        run(release.weights_file, domain, tmp_path / "out", max_minutes=0)
    with pytest.raises(InputError, match="needs held-out sentences"):
        run(release.weights_file, domain, tmp_path / "out", "run.heldout=0")
    words = write_release(tmp_path / "w", VARIANTS["word input"]).weights_file
    with pytest.raises(InputError, match="only biLMs with character input can be trained"):
        run(words, domain, tmp_path / "out")
    assert not (tmp_path / "out").exists()
