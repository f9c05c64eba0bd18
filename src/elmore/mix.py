"""(3) Layers to one vector: Eq. (1), with weights that a task learns.

B sentences, J layers, T tokens with boundaries, W words, D dim, P dim after a projection.
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.bilm.model import BiLM, BiLMOutput, BiLMState
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.padded import PaddedRunner
from elmore.schema import at_least, check, one_of
from elmore.text.sentences import TokenBatch

MixWeights = Literal["learned", "average", "top"] | Sequence[float]
Runner = TypeVar("Runner", bound="BiLMRunner")
LayerNorm = bool | Literal["token", "allennlp", "bilm-tf"]


class ScalarMix(nn.Module):
    """ELMo_k = gamma * sum_j s_j h_kj with s = softmax(w), Eq. (1).

    Learned weights start as the plain average of the layers: w = 0, gamma = 1.

    Args:
        num_layers: Layers to mix, L + 1.
        weights: `learned`; `average` or `top`, which learn gamma alone; or fixed values of w,
            before the softmax, with gamma fixed at 1.
        layer_norm: False; `token` (or True) to normalize each vector; `allennlp` or `bilm-tf` for
            one mean and variance over all tokens of the batch, as the released code has it.
    """

    def __init__(
        self, num_layers: int, *, weights: MixWeights = "learned", layer_norm: LayerNorm = False
    ) -> None:
        super().__init__()
        check("layer_norm", layer_norm, one_of(False, True, "token", "allennlp", "bilm-tf"))
        self.layer_norm: LayerNorm = "token" if layer_norm is True else layer_norm
        self.gamma = nn.Parameter(torch.ones(()))
        if weights == "learned":
            self.w = nn.Parameter(torch.zeros(num_layers))
        elif weights == "average":
            self.register_buffer("w", torch.zeros(num_layers))
        elif weights == "top":
            # exp(-inf) = 0: the softmax leaves exactly the top layer.
            self.register_buffer("w", torch.tensor([-torch.inf] * (num_layers - 1) + [0.0]))
        elif isinstance(weights, str) or len(weights) != num_layers:
            raise InputError(
                f"weights must be learned, average, top or {num_layers} numbers, got {weights!r}"
            )
        else:
            self.register_buffer("w", torch.tensor(weights, dtype=torch.float32))
            self.gamma.requires_grad_(False)

    def forward(
        self, layers: Float[Tensor, "B J T D"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Mix the layers. A batch-wide layer norm takes its statistics over `mask` only."""
        if layers.shape[1] != len(self.w):
            raise InputError(f"expected {len(self.w)} layers to mix, got {layers.shape[1]}")
        if self.layer_norm == "token":
            # Deviation: the released code normalizes over the whole batch, so a sentence's vectors
            # depend on the other sentences.
            layers = F.layer_norm(layers, layers.shape[-1:])
        elif self.layer_norm:
            layers = normalize_batch(layers, mask)
        return self.gamma * torch.einsum("j,bjtd->btd", self.w.softmax(dim=0), layers)

    def penalty(self) -> Float[Tensor, ""]:
        """Return ||w||^2; scaled by lambda it pulls the mix to a plain average (section 3.3)."""
        return self.w.square().sum() if self.w.requires_grad else self.w.new_zeros(())


def normalize_batch(
    layers: Float[Tensor, "B J T D"], mask: Bool[Tensor, "B T"] | None
) -> Float[Tensor, "B J T D"]:
    """Give each layer mean 0 and variance 1 over all real tokens and dimensions of the batch."""
    real = torch.ones_like(layers[:, :1, :, :1]) if mask is None else mask[:, None, :, None]
    real = real.to(layers.dtype)
    count = real.sum() * layers.shape[-1]
    mean = (layers * real).sum(dim=(0, 2, 3), keepdim=True) / count  # (1, J, 1, 1)
    variance = ((layers - mean) * real).square().sum(dim=(0, 2, 3), keepdim=True) / count
    return (layers - mean) / (variance + 1e-12).sqrt()


class BiLMRunner(nn.Module):
    """A biLM as a part of a model, frozen or trained.

    A frozen biLM is copied, so later changes to the caller's model have no effect. It runs in the
    same engine as `Embedder`, also during training. To freeze or unfreeze it later, call
    `bilm.requires_grad_`; then call `train`, which turns its dropout on or off.

    Args:
        bilm: The language model. Copied if frozen, otherwise trained in place.
        frozen: Do not train the biLM.
    """

    def __init__(self, bilm: BiLM, *, frozen: bool = True) -> None:
        super().__init__()
        if not isinstance(bilm, BiLM):
            raise TypeError(
                f"expected a BiLM, got {type(bilm).__name__}. The biLM of an embedder is "
                "`embedder.bilm`."
            )
        self.bilm = (copy.deepcopy(bilm) if frozen else bilm).requires_grad_(not frozen)
        self._runner: PaddedRunner | None = None  # of a frozen biLM, made at the first call
        self.register_load_state_dict_post_hook(_refresh)  # type: ignore[no-untyped-call]
        self.train(self.training)

    @property
    def frozen(self) -> bool:
        """Whether no weight of the biLM requires a gradient."""
        return not any(weight.requires_grad for weight in self.bilm.parameters())

    def run_bilm(
        self, ids: Int[Tensor, "B T *C"], mask: Bool[Tensor, "B T"], state: BiLMState | None = None
    ) -> BiLMOutput:
        """Run the biLM alone, as `BiLM.forward` does; without gradients if it is frozen."""
        if not self.frozen:
            self.refresh()  # its weights will have changed if it is frozen again
            return self.bilm(ids, mask, state)
        if self._runner is None:
            self._runner = PaddedRunner(new_engine(copy.deepcopy(self.bilm)))
        return self._runner(ids, mask, state)

    def refresh(self) -> None:
        """Take the current weights of a frozen `bilm`; call it after changing them in place.

        Loading a state dict or moving the module refreshes automatically.
        """
        self._runner = None

    def _apply(self: Runner, fn: Any, recurse: bool = True) -> Runner:
        self.refresh()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the engine: packed weights and CUDA graphs cannot be pickled."""
        return {**self.__dict__, "_runner": None}

    def train(self: Runner, mode: bool = True) -> Runner:
        """Set the training mode; a frozen biLM has no dropout while the task trains."""
        super().train(mode)
        self.bilm.train(mode and not self.frozen)
        return self


def _refresh(module: BiLMRunner, _: object) -> None:
    module.refresh()


class Elmo(BiLMRunner):
    """A biLM with one or more mixes of its layers, each learned by the task.

    The biLM runs once however many mixes there are: one for the input of the task RNN and,
    where it helps, another for its output (section 3.3).

    A frozen biLM is copied and runs in the same fast engine as `Embedder`, without gradients and
    without dropout. Only the mixes, and the projections if there are any, have gradients. After
    `elmo.bilm.requires_grad_()`, the biLM is trained, too.

    Args:
        bilm: The language model, such as `embedder.bilm`. Trained in place if not frozen.
        num_mixes: Representations to return.
        weights: `learned`, `average`, `top`, or fixed weights; see `ScalarMix`.
        layer_norm: Normalize the layers before they are mixed; see `ScalarMix`.
        dropout: Dropout rate of each representation, in training mode.
        frozen: Do not train the biLM.
        keep_boundaries: Return the vectors of `<S>` and `</S>` as well.
        projection_dim: Map each representation to this width, linearly.

    Attributes:
        dim: Width of a representation.
        mixes: The `ScalarMix` of each representation.
    """

    def __init__(
        self,
        bilm: BiLM,
        *,
        num_mixes: int = 1,
        weights: MixWeights = "learned",
        layer_norm: LayerNorm = False,
        dropout: float = 0.5,
        frozen: bool = True,
        keep_boundaries: bool = False,
        projection_dim: int | None = None,
    ) -> None:
        super().__init__(bilm, frozen=frozen)
        check("num_mixes", num_mixes, at_least(1))
        self.keep_boundaries = keep_boundaries
        width = 2 * bilm.config.dim
        self.dim = projection_dim or width
        self.mixes = nn.ModuleList(
            ScalarMix(bilm.config.num_layers + 1, weights=weights, layer_norm=layer_norm)
            for _ in range(num_mixes)
        )
        self.projections = nn.ModuleList(
            nn.Linear(width, projection_dim) if projection_dim else nn.Identity()
            for _ in range(num_mixes)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TokenBatch) -> list[Float[Tensor, "B W P"]]:
        """Return one tensor per mix; padding is zero.

        Args:
            batch: The result of `Embedder.encode` or `encode_sentences`.
        """
        if not isinstance(batch, TokenBatch):
            raise TypeError(
                f"expected a batch of ids, got {type(batch).__name__}. Encode sentences first: "
                "elmo(elmore.encode_sentences(sentences))."
            )
        on_device = batch.to(next(self.bilm.parameters()).device)
        output = self.run_bilm(*(batch if self.frozen else on_device))
        return self.mix(output.layers, on_device.mask)

    def mix(
        self, layers: Float[Tensor, "B J T D"], mask: Bool[Tensor, "B T"]
    ) -> list[Float[Tensor, "B W P"]]:
        """Mix the layers of a biLM, boundary tokens included."""
        words = F.pad(mask[:, 2:], (1, 1))  # (B, T), off at <S> and </S>
        kept = mask if self.keep_boundaries else words
        inner = slice(None) if self.keep_boundaries else slice(1, -1)
        outputs = []
        for mix, project in zip(self.mixes, self.projections, strict=True):
            # AllenNLP's statistics include the boundary tokens, those of bilm-tf do not.
            mixed = mix(layers, mask if mix.layer_norm == "allennlp" else words)[:, inner]
            outputs.append(self.dropout(project(mixed)) * kept[:, inner, None])
        return outputs


def mean_pool(vectors: Float[Tensor, "B W D"], mask: Bool[Tensor, "B W"]) -> Float[Tensor, "B D"]:
    """Average the words of each sentence; a sentence without words is zero."""
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (vectors * mask[..., None]).sum(dim=1) / count


def max_pool(vectors: Float[Tensor, "B W D"], mask: Bool[Tensor, "B W"]) -> Float[Tensor, "B D"]:
    """Take the maximum over the words of each sentence; a sentence without words is zero."""
    lowest = torch.finfo(vectors.dtype).min
    # One position more, all lowest, so that a batch without any word has a maximum too.
    filled = F.pad(vectors.masked_fill(~mask[..., None], lowest), (0, 0, 0, 1), value=lowest)
    return filled.amax(dim=1).masked_fill(~mask.any(dim=1, keepdim=True), 0)
