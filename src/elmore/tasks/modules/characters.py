"""The character CNN of a task, which complements its word vectors (Ma and Hovy, 2016).

B sentences, T words, C characters, E character dim, F filters.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.text.characters import NUM_CHARACTERS


class CharCNN(nn.Module):
    """Character embeddings, one convolution, max-pooling over the word, ReLU."""

    def __init__(self, *, dim: int, width: int, num_filters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_CHARACTERS, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, num_filters, width, padding=width // 2)

    def forward(self, characters: Int[Tensor, "B T C"]) -> Float[Tensor, "B T F"]:
        """Encode each word."""
        B, T, C = characters.shape
        x = self.embed(characters.reshape(B * T, C)).transpose(1, 2)  # (BT, E, C)
        return functional.relu(self.conv(x).amax(dim=-1)).unflatten(0, (B, T))
