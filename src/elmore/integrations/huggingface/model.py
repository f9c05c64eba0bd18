"""`ElmoModel`: the biLM as a model of transformers.

B sentences, W words, N words of all sentences, C characters, T tokens, J layers, D = 2 * dim.
"""

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM, BiLMState
from elmore.checkpoint.directory import (
    CONFIG,
    MODEL_FILES,
    read_config,
    write_config,
    write_directory,
)
from elmore.checkpoint.hub import HubId, download
from elmore.checkpoint.pretrained import CARD, read_pretrained
from elmore.device import find_device
from elmore.embedder import default_batch_words, get_word_encoder
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.layers import check_layer, select_layers
from elmore.inference.padded import PaddedRunner
from elmore.integrations.huggingface.card import complete_card
from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.tokenizer import is_word
from elmore.schema import from_mapping
from elmore.text.sentences import BOS_WORD, EOS_WORD
from elmore.text.tokenize import Tokenization
from elmore.text.vocabulary import Vocabulary
from elmore.transfer import to_device

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ElmoModel(PreTrainedModel):
    """A biLM as a transformers model.

    The biLM is frozen and runs in the same engine as `elmore.Embedder`, with bit-equal vectors. To
    fine-tune it, call `requires_grad_()`; it then runs as a plain PyTorch module.

    Args:
        config: The configuration.
        bilm: The biLM; by default, a new one with random weights.
        vocabulary: The words of a word-input biLM.
        card: The model card, in Markdown.
    """

    config_class = ElmoConfig
    main_input_name = "input_ids"

    def __init__(
        self,
        config: ElmoConfig,
        bilm: BiLM | None = None,
        vocabulary: Vocabulary | None = None,
        card: str | None = None,
    ) -> None:
        super().__init__(config)
        sizes = from_mapping(BiLMConfig, config.bilm, "bilm")
        check_layer(config.layers, sizes.num_layers + 1)
        self.bilm = bilm or BiLM(sizes)
        self.vocabulary = vocabulary
        self.card = card
        self._boundaries = get_word_encoder(sizes, vocabulary)([BOS_WORD, EOS_WORD])
        self._engine: tuple[PaddedRunner, BiLMState] | None = None  # made at the first call
        self.register_load_state_dict_post_hook(_refresh)
        self.post_init()
        self.requires_grad_(False)
        self.eval()

    def _init_weights(self, module: nn.Module) -> None:
        """Keep the initialization of `BiLM`."""

    @property
    def frozen(self) -> bool:
        """Whether no weight requires a gradient."""
        return not any(weight.requires_grad for weight in self.bilm.parameters())

    def forward(
        self,
        input_ids: Int[Tensor, "B W *C"],
        attention_mask: Int[Tensor, "B W"] | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Return the vectors of each word, zero at padding.

        Args:
            input_ids: Words, as `ElmoTokenizer` encodes them, without boundary tokens.
            attention_mask: 0 at padding.
            output_hidden_states: Also return all J layers, `hidden_states`.
            return_dict: Return a `BaseModelOutput` instead of a tuple.
        """
        if attention_mask is None:
            attention_mask = is_word(input_ids)
        mask = attention_mask.bool()
        layers = self._run_engine(input_ids, mask) if self.frozen else self._run(input_ids, mask)
        words = to_device(mask.cpu().flatten().nonzero()[:, 0], layers.device)

        def pad(vectors: Float[Tensor, "N D"]) -> Float[Tensor, "B W D"]:
            padded = vectors.new_zeros(mask.numel(), vectors.shape[1])
            return padded.index_copy(0, words, vectors).unflatten(0, mask.shape)

        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        output = BaseModelOutput(
            last_hidden_state=pad(select_layers(layers, self.config.layers)),
            hidden_states=tuple(map(pad, layers)) if output_hidden_states else None,
        )
        return output.to_tuple() if return_dict is False else output

    def _run_engine(
        self, ids: Int[Tensor, "B W *C"], mask: Bool[Tensor, "B W"]
    ) -> Float[Tensor, "J N D"]:
        if self._engine is None:
            runner = PaddedRunner(new_engine(copy.deepcopy(self.bilm)))
            self._engine = runner, runner.start_state(self._boundaries)
        runner, start = self._engine
        max_words = default_batch_words(self.bilm.config, runner.engine.device)
        return runner.run_words(ids, mask, start, max_words=max_words)

    def _run(self, ids: Int[Tensor, "B W *C"], mask: Bool[Tensor, "B W"]) -> Float[Tensor, "J N D"]:
        """Run the plain biLM, with boundary tokens and gradients."""
        self.refresh()  # the weights will have changed if they are frozen again
        bos, eos = self._boundaries.to(ids.device).split(1)
        rows = zip(ids, mask, strict=True)
        sentences = [torch.cat([bos, words[real], eos]) for words, real in rows]
        padded = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        lengths = torch.tensor([len(sentence) for sentence in sentences], device=ids.device)
        position = torch.arange(padded.shape[1], device=ids.device)
        layers = self.bilm(padded, position < lengths[:, None]).layers  # (B, J, T, D)
        inner = (position > 0) & (position < lengths[:, None] - 1)
        return layers.transpose(1, 2)[inner].transpose(0, 1)

    def refresh(self) -> None:
        """Take the current weights; call it after changing those of a frozen model in place.

        Loading a state dict, moving or freezing the model refreshes automatically.
        """
        self._engine = None

    def _apply(self, fn: Any, recurse: bool = True) -> "ElmoModel":
        before = [weight.data_ptr() for weight in self.parameters()]
        super()._apply(fn, recurse)
        if before != [weight.data_ptr() for weight in self.parameters()]:
            self.refresh()  # not if the weights stay: some libraries call `to` before each batch
        return self

    def requires_grad_(self, requires_grad: bool = True) -> "ElmoModel":
        """Freeze the model or make it trainable."""
        self.refresh()
        return super().requires_grad_(requires_grad)

    def train(self, mode: bool = True) -> "ElmoModel":
        """Set the training mode; a frozen biLM has no dropout while a task trains."""
        super().train(mode)
        self.bilm.train(mode and not self.frozen)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the engine: packed weights and CUDA graphs cannot be pickled."""
        return {**self.__dict__, "_engine": None}

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Path | str,
        *_: Any,
        config: ElmoConfig | None = None,
        revision: str | None = None,
        cache_dir: Path | str | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        dtype: torch.dtype | str | None = None,
        torch_dtype: torch.dtype | str | None = None,
        device_map: Any = None,
        **kwargs: Any,
    ) -> "ElmoModel":
        """Load a directory written by elmore, or a model on the Hugging Face Hub.

        The weights are loaded as `elmore.load` does: all must be there, and match their checksum.

        Args:
            pretrained_model_name_or_path: The directory, or an id such as `user/model`.
            config: The configuration; by default that of the model.
            revision: Branch, tag or commit of a model on the Hub.
            cache_dir: Folder of downloaded files; by default that of the Hugging Face cache.
            force_download: Download the files even if they are cached.
            local_files_only: Only use cached files.
            token: Access token for the Hub.
            dtype: float32 or bfloat16.
            torch_dtype: Older name of `dtype`.
            device_map: Where to run: a device such as `cuda`, or `auto`.
            kwargs: Values to replace in the configuration, such as `layers`; others have no effect.

        Raises:
            InputError: If there is no such model, or its files are damaged or do not match.
        """
        hub = {
            "cache_dir": cache_dir,
            "force_download": force_download,
            "local_files_only": local_files_only,
            "token": token,
        }
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            folder = download(HubId(str(pretrained_model_name_or_path), revision), **hub)
        saved = read_pretrained(folder)
        config = config or ElmoConfig.from_pretrained(folder, **kwargs)
        if from_mapping(BiLMConfig, config.bilm, "bilm") != saved.bilm.config:
            raise InputError(f"{folder} has other sizes than the configuration that was passed")
        card = folder / CARD
        text = card.read_text(encoding="utf-8") if card.is_file() else None
        model = cls(config, saved.bilm, saved.vocabulary, text)
        model.to(_get_dtype(dtype or torch_dtype))
        return model if device_map is None else model.to(_get_device(device_map))

    def save_pretrained(
        self,
        save_directory: Path | str,
        is_main_process: bool = True,
        *,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Write a directory that `elmore.load` and `from_pretrained` read, with a model card.

        The weights are written in float32. A model in the directory is replaced.

        Args:
            save_directory: The directory.
            is_main_process: False in all but one process of a distributed run: do nothing.
            push_to_hub: Also upload it.
            repo_id: Where to; by default the name of the directory.
            kwargs: Arguments of `push_to_hub`; those about files have no effect.
        """
        if not is_main_process:
            return
        folder = Path(save_directory)
        self._write(folder, folder.name)
        if push_to_hub:
            self.push_to_hub(repo_id or folder.name, **kwargs)

    def _write(self, folder: Path, name: str) -> None:
        """Write the files of `save_pretrained`; the card says to load `name`."""
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".elmore-", dir=folder) as scratch:
            temporary = Path(scratch)
            text = self.config.text
            write_directory(
                self.bilm,
                temporary,
                vocabulary=self.vocabulary,
                provenance=getattr(self.config, "provenance", None),
                tokenization=text and from_mapping(Tokenization, text, "text"),
            )
            entries = {"architectures": [type(self).__name__], "layers": self.config.layers}
            write_config(read_config(temporary) | entries, temporary)
            card = complete_card(self.card, self.config, self.num_parameters(), name)
            (temporary / CARD).write_text(card, encoding="utf-8")
            for pattern in MODEL_FILES:
                for old in folder.glob(pattern):
                    old.unlink()
            for new in sorted(temporary.iterdir(), key=lambda file: file.name == CONFIG):
                new.replace(folder / new.name)  # config.json is the last one

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload ELMo model",
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
        **_: Any,
    ) -> Any:
        """Upload the files of `save_pretrained` to the Hugging Face Hub; return the commit.

        Args:
            repo_id: `user/model`, which is created if it does not exist.
            commit_message: Message of the commit.
            private: Whether a new repository is private.
            token: Access token; by default that of `hf auth login`.
            revision: Branch to upload to, which is created if it does not exist.
            create_pr: Open a pull request.
        """
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="elmore-") as folder:
            self._write(Path(folder), repo_id)
            return api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
                create_pr=create_pr,
                delete_patterns=[*MODEL_FILES],  # of an older model
            )


def _refresh(model: ElmoModel, _: object) -> None:
    model.refresh()


def _get_dtype(dtype: torch.dtype | str | None) -> torch.dtype:
    name = str(dtype).removeprefix("torch.")
    if dtype is not None and name not in ("auto", *_DTYPES):
        raise InputError(f"dtype must be float32 or bfloat16, got {name}")
    return _DTYPES.get(name, torch.float32)


def _get_device(device_map: Any) -> torch.device:
    if isinstance(device_map, Mapping):
        if [*device_map] != [""]:
            raise InputError("ELMo runs on one device; device_map must name one")
        device_map = device_map[""]
    return find_device(f"cuda:{device_map}" if isinstance(device_map, int) else device_map)
