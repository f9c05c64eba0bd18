"""Task training on a GPU. Oracle: the same run on the CPU."""

import json
from pathlib import Path

import pytest
import torch

from elmore.tasks import read_task_config, train_task
from tests.tasks.conftest import SENTENCES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
COLUMNS = """\
#begin document (bc/ada); part 000
bc/ada 0 0 Ada PRP * meet 01 - ann * (ARG0*) (1)
bc/ada 0 1 met VBD * - - - ann * (V*) -
bc/ada 0 2 the DT * - - - bob * (ARG1* (2
bc/ada 0 3 king NN * - - - bob * *) 2)

bc/ada 0 0 He PRP * know 01 - ann * (ARG0*) (2)
bc/ada 0 1 knew VBD * - - - ann * (V*) -
bc/ada 0 2 her PRP * - - - ann * (ARG1*) (1)

#end document
"""
ADA = "Ada Lovelace was born in London. She died in London."
PAIRS = [
    {"gold_label": label, "sentence1": "A man sings on a stage .", "sentence2": text}
    for label, text in {"entailment": "A man sings .", "neutral": "He is old ."}.items()
]
QUESTIONS = [
    {
        "question": "Where was she born?",
        "answers": [{"text": "London", "answer_start": i} for i in (25, 45)],
    },
    {"question": "Who?", "answers": [{"text": "Ada Lovelace", "answer_start": 0}]},
]
DATA = {
    "ner": SENTENCES,
    "sentiment": "(4 (2 It) (4 works))\n(0 (2 It) (0 (1 never) (2 did)))\n",
    "entailment": "".join(f"{json.dumps(pair)}\n" for pair in PAIRS),
    "qa": json.dumps({"data": [{"paragraphs": [{"context": ADA, "qas": QUESTIONS}]}]}),
    "srl": COLUMNS,
    "coref": COLUMNS,
}
SETTINGS = {
    "ner": ["tagger.dropout=0"],
    "sentiment": ["network.dropout=0"],
    "entailment": [f"network.{name}dropout=0" for name in ("", "rnn_", "attention_")],
    "qa": ["reader.dropout=0"],
    "srl": ["labeler.dropout=0", "labeler.hidden=20"],
    "coref": ["ranker.dropout=0", "ranker.rnn_dropout=0"],
}


@pytest.mark.parametrize("task", DATA)
def test_gpu_losses_equal_cpu_losses(task: str, model: Path, glove: Path, tmp_path: Path) -> None:
    path = tmp_path / "examples"
    path.write_text(DATA[task])
    changes = [
        *SETTINGS[task], f"elmo.model={model}", "elmo.place=both", f"words.vectors={glove}",
        "words.min_count=1", "words.dropout=0", "elmo.dropout=0", "training.epochs=2",
        "training.average=0.5", "training.batch_size=1",
    ]  # fmt: skip
    config = read_task_config(task, changes=changes)

    def losses(device: str) -> list[float]:
        train_task(task, tmp_path / device, train=[path], dev=path, config=config, device=device)
        lines = (tmp_path / device / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    assert losses("cuda") == pytest.approx(losses("cpu"), rel=1e-3)
