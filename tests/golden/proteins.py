"""The model, the FASTA file and the options of seqvec's golden vectors.

This file needs only NumPy and h5py, because `make_seqvec.py` runs where elmore is not installed.
"""

from typing import Any

import numpy as np

from tests.golden.models import LARGE

MODEL = LARGE  # SeqVec's architecture: 50 characters, two highways, two layers, skip connections

# Upper and lower case, rare residues, a stop codon, a gap, CRLF, white space, several lines, `>` in
# a header, a repeated id, an empty protein, and lengths that do not increase.
FASTA = (
    ">sp|P1|A_HUMAN Alpha subunit\nMKVLAAGIVTLLSACSSDK\nTEEQIRALA\n"
    ">sp|P2|B beta->alpha\r\nMSEQ\r\nNCEO\r\n\r\n"
    ">sp|P3|C\nmkwvtfislLFLFSSAYSRGV FRRDA\nHKSEVAHRFKDLGEENFKALVLIAF\n"
    ">sp|P4|D\nMX*-BZUJ\n"
    ">sp|P5|E\n\n"
    ">sp|P6|F\nM\n"
    ">sp|P7|G\nMGDVEKGKKIFIMKCSQCHTVEKGGKHKTGPNLHGLFGRKTGQAPGYSYTAANKNKGIIW\n"
    ">sp|P2|B again\nMSEQVENCE\n"
    ">sp|P8|H\nMALWMRLLPLLALLALWGPDPAAAFVNQ\n"
)

RUNS: dict[str, dict[str, Any]] = {
    "small batches": {"batchsize": 40, "layer": "all"},
    "one batch": {"layer": "all"},
    "sum": {"batchsize": 40},
    "CNN": {"batchsize": 40, "layer": "CNN", "id_field": -1},
    "LSTM1": {"batchsize": 40, "layer": "LSTM1", "id_field": 2},
    "LSTM2": {"batchsize": 1, "layer": "LSTM2", "id_field": 0, "split_char": " "},
    "per protein": {"batchsize": 40, "per_protein": True},
}
"""Arguments of `get_embeddings`."""


def stored_dims(vectors: np.ndarray) -> np.ndarray:
    """Return the dimensions to store: every 16th."""
    return vectors[..., ::16]
