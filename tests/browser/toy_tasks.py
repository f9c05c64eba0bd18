"""The six tasks, trained for a moment on a few sentences: enough to draw what they predict."""

import json
from pathlib import Path

import pytest

from elmore.tasks import read_task_config, train_task
from tests.tasks.conftest import SENTENCES

_PASSAGE = "Ada Lovelace, born in London, was the first programmer."
_ANSWERS = {"Where was she born?": "London", "What was she?": "the first programmer"}
_SRL = """\
#begin document (a/b/0001); part 000
a/b/0001 0 0 She  PRP (TOP(S(NP*) -    -  - - * (ARG0*) -
a/b/0001 0 1 gave VBD (VP*        give 01 - - * (V*)    -
a/b/0001 0 2 him  PRP (NP*)       -    -  - - * (ARG2*) -
a/b/0001 0 3 a    DT  (NP*        -    -  - - * (ARG1*  -
a/b/0001 0 4 book NN  *))         -    -  - - * *)      -
a/b/0001 0 5 .    .   *))         -    -  - - * *       -

#end document
"""
_COREF = """\
#begin document (bc/ada); part 000
bc/ada 0 0 Ada NNP * - - - ann * (1)
bc/ada 0 1 met VBD * - - - ann * -
bc/ada 0 2 the DT * - - - ann * (2
bc/ada 0 3 king NN * - - - ann * 2)
bc/ada 0 4 . . * - - - ann * -

bc/ada 0 0 He PRP * - - - ann * (2)
bc/ada 0 1 knew VBD * - - - ann * -
bc/ada 0 2 her PRP * - - - ann * (1)
bc/ada 0 3 . . * - - - ann * -

#end document
"""
_PAIRS = [
    {"gold_label": "entailment", "sentence1": "A man sings loud.", "sentence2": "A man sings."},
    {"gold_label": "contradiction", "sentence1": "A man sings.", "sentence2": "He is silent."},
    {"gold_label": "neutral", "sentence1": "A dog runs.", "sentence2": "The dog is hungry."},
]
_SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": _PASSAGE,
                    "qas": [
                        {
                            "question": question,
                            "answers": [{"text": text, "answer_start": _PASSAGE.index(text)}],
                        }
                        for question, text in _ANSWERS.items()
                    ],
                }
            ]
        }
    ]
}
_DATA = {
    "ner": SENTENCES,
    "srl": _SRL,
    "coref": _COREF,
    "qa": json.dumps(_SQUAD),
    "entailment": "\n".join(map(json.dumps, _PAIRS)),
    "sentiment": "(4 (2 The) (4 (2 film) (4 shines)))\n(1 (2 The) (1 (2 plot) (1 bores)))\n",
}
_SUFFIX = {"qa": "json", "entailment": "jsonl", "sentiment": "txt"}
_SMALL = {
    "ner": ["tagger.hidden=8", "training.epochs=20", "training.lr=0.02"],
    "srl": ["labeler.hidden=8", "training.epochs=30", "training.lr=0.02"],
    "coref": ["ranker.hidden=8"],
    "qa": ["reader.hidden=8"],
    "entailment": ["network.hidden=8"],
    "sentiment": ["network.hidden=8"],
}


def train_all(folder: Path, bilm: Path) -> list[Path]:
    """Train each task, and NER once more without ELMo; return the folders."""
    return [
        *(_train(name, folder / name, bilm) for name in _DATA),
        _train("ner", folder / "ner-baseline", None),
    ]


def _train(name: str, output: Path, bilm: Path | None) -> Path:
    data = output.with_suffix(f".{_SUFFIX.get(name, 'conll')}")
    data.write_text(_DATA[name], encoding="utf-8")
    elmo = f"elmo.model={bilm}" if bilm else "elmo.place=none"
    common = ["words.min_count=1", "words.dim=8", "training.epochs=1", elmo]
    config = read_task_config(name, changes=[*common, *_SMALL[name]])
    options = {"train": [data], "dev": data, "device": "cpu", "progress": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmore.tasks.train.plot_task", lambda *_: None)
        train_task(name, output, config=config, **options)
    return output
