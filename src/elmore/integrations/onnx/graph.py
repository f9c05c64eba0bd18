"""A biLM as a graph of ONNX operators.

The graph is built from operators directly, so it does not depend on the exporters of PyTorch. Each
LSTM is one `Scan`, because the operator `LSTM` has no projection and no clipping of its cell state.
Values are time-major.

T tokens, B sentences, N distinct tokens, C characters, E character dim, F filters, D dim, H cell
dim, G = 4H gates, J layers.
"""

from functools import partial
from itertools import count
from typing import Any, cast

import torch
from torch import Tensor, nn

import elmore
from elmore.bilm.lstm import ProjectedLSTM
from elmore.bilm.model import BiLM
from elmore.bilm.token_encoder import CharEncoder, Highway, WordEncoder
from elmore.errors import require

PRODUCER = "elmore"
_OPSET, _IR_VERSION = 18, 8  # ONNX Runtime 1.14 and later


def build_model(bilm: BiLM) -> Any:
    """Return a biLM as an `onnx.ModelProto` without metadata."""
    config = bilm.config
    characters = [] if config.vocab_size is not None else [config.max_characters]
    graph = _Graph()
    ids = graph.input("ids", "INT64", ["batch", "tokens", *characters])
    ids = graph("Transpose", ids, perm=[1, 0, 2] if characters else [1, 0])  # (T, B, *C)
    # The ids of padding are all 0; no token starts with a 0.
    first = graph("Gather", ids, graph.constant(0), axis=2) if characters else ids
    is_token = graph("Cast", first, to=graph.types.BOOL)  # (T, B)
    lengths = graph("Cast", is_token, to=graph.types.INT64)
    lengths = graph("ReduceSum", lengths, graph.constant([0]), keepdims=0)  # (B,)
    # Reverse each sentence, but not its padding: [a b c _] -> [c b a _]
    flip = partial(graph, "ReverseSequence", time_axis=0, batch_axis=1)

    x = _encode(graph, bilm.encode, ids)  # (T, B, D)
    ahead, behind = x, flip(x, lengths)
    layers = [graph("Concat", x, x, axis=-1)]  # (T, B, 2D) each
    lstms = zip(bilm.forward_lstms, bilm.backward_lstms, strict=True)
    for j, pair in enumerate(lstms):
        residual = config.residual and j > 0
        forward, backward = (cast("ProjectedLSTM", lstm) for lstm in pair)
        ahead = _lstm(graph, forward, ahead, residual=residual)
        behind = _lstm(graph, backward, behind, residual=residual)
        layers.append(graph("Concat", ahead, flip(behind, lengths), axis=-1))
    stacked = [graph("Unsqueeze", layer, graph.constant([0])) for layer in layers]
    # Without the boundary tokens: n words fill n + 2 positions.
    words = graph.slice(graph("Concat", *stacked, axis=0), 1, -1, axis=1)  # (J, W, B, 2D)
    is_word = graph.slice(is_token, 2, None, axis=0)  # (W, B)
    kept = graph("Unsqueeze", graph("Cast", is_word, to=graph.types.FLOAT), graph.constant([2]))
    words = graph("Transpose", graph("Mul", words, kept), perm=[2, 0, 1, 3])
    graph.output("layers", words, "FLOAT", ["batch", len(layers), "words", 2 * config.dim])
    mask = graph("Transpose", is_word, perm=[1, 0])
    graph.output("mask", mask, "BOOL", ["batch", "words"])
    return graph.to_model()


def _encode(graph: "_Graph", encode: CharEncoder | WordEncoder, ids: str) -> str:
    """Add the token encoder; return token vectors (T, B, D)."""
    table = graph.constant(encode.embed.weight)
    if isinstance(encode, WordEncoder):
        return graph("Gather", table, ids)
    T_B, C = graph("Shape", ids, end=2), graph("Shape", ids, start=2)
    flat = graph("Reshape", ids, graph("Concat", graph.constant([-1]), C, axis=0))
    # Each distinct token is encoded once.
    distinct, _, rows = graph.outputs("Unique", 3, flat, axis=0, sorted=0)  # (N, C), (T * B,)
    x = graph("Transpose", graph("Gather", table, distinct), perm=[0, 2, 1])  # (N, E, C)
    pooled = []
    for conv in encode.convs:
        filtered = graph("Conv", x, *map(graph.constant, conv.parameters()))
        pooled.append(graph("ReduceMax", filtered, graph.constant([-1]), keepdims=0))
    x = graph("Concat", *pooled, axis=-1)  # (N, F)
    x = graph("Relu" if isinstance(encode.activation, nn.ReLU) else "Tanh", x)
    for highway in encode.highways:
        x = _highway(graph, cast("Highway", highway), x)
    if isinstance(encode.project, nn.Linear):
        x = _linear(graph, encode.project, x)  # (N, D)
    return graph("Gather", x, graph("Reshape", rows, T_B))


def _highway(graph: "_Graph", highway: Highway, x: str) -> str:
    transformed = graph("Relu", _linear(graph, highway.transform, x))
    gate = graph("Sigmoid", _linear(graph, highway.gate, x))
    return graph("Add", x, graph("Mul", gate, graph("Sub", transformed, x)))


def _lstm(graph: "_Graph", lstm: ProjectedLSTM, x: str, *, residual: bool) -> str:
    """Add an LSTM; return its outputs (T, B, D), to which `residual` adds its inputs.

    Padding comes after the tokens of a sentence and cannot change their vectors, so there is no
    mask.
    """
    D, H = lstm.dim, lstm.cell_dim
    B = graph("Shape", x, start=1, end=2)
    zeros = [
        graph("ConstantOfShape", graph("Concat", B, graph.constant([width]), axis=0))
        for width in (D, H)
    ]
    step = graph.subgraph()
    h, c = step.input("h", "FLOAT", ["batch", D]), step.input("c", "FLOAT", ["batch", H])
    gates = step.input("gates", "FLOAT", ["batch", 4 * H])
    gates = step("Add", gates, _linear(step, lstm.recurrent, h))
    i, f, g, o = step.outputs("Split", 4, gates, axis=-1, num_outputs=4)  # (B, H) each
    kept, new = step("Mul", step("Sigmoid", f), c), step("Mul", step("Sigmoid", i), step("Tanh", g))
    c = _clip(step, step("Add", kept, new), lstm.cell_clip)
    h = step("Mul", step("Sigmoid", o), step("Tanh", c))
    if isinstance(lstm.project, nn.Linear):
        h = _linear(step, lstm.project, h)
    h = _clip(step, h, lstm.projection_clip)
    step.output("new_h", h, "FLOAT", ["batch", D])
    step.output("new_c", c, "FLOAT", ["batch", H])
    step.output("outputs", h, "FLOAT", ["batch", D])
    inputs = (*zeros, _linear(graph, lstm.input, x))
    _, _, outputs = graph.outputs("Scan", 3, *inputs, body=step.to_graph(), num_scan_inputs=1)
    return graph("Add", outputs, x) if residual else outputs


def _linear(graph: "_Graph", linear: nn.Linear, x: str) -> str:
    product = graph("MatMul", x, graph.constant(linear.weight.T))
    return product if linear.bias is None else graph("Add", product, graph.constant(linear.bias))


def _clip(graph: "_Graph", x: str, bound: float | None) -> str:
    if bound is None:
        return x
    return graph("Clip", x, graph.constant(-bound), graph.constant(bound))


class _Graph:
    """A graph of ONNX operators that grows with each call. Its values are known by their names.

    The constants of a subgraph are those of the whole model.
    """

    def __init__(self, parent: "_Graph | None" = None) -> None:
        onnx = require("onnx", extra="onnx")
        self.types, self._helper, self._arrays = onnx.TensorProto, onnx.helper, onnx.numpy_helper
        self._numbers: count[int] = parent._numbers if parent else count()
        self._constants: list[Any] = parent._constants if parent else []
        self._is_subgraph = parent is not None
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; return the name of its output."""
        [output] = self.outputs(operator, 1, *inputs, **attributes)
        return output

    def outputs(self, operator: str, number: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operator; return the names of its first outputs."""
        names = [self._new_name(operator) for _ in range(number)]
        self._nodes.append(self._helper.make_node(operator, inputs, names, **attributes))
        return names

    def constant(self, value: Tensor | list[int] | float) -> str:
        """Add a constant: weights, the integers of a shape or a scalar."""
        name = self._new_name("constant")
        array = torch.as_tensor(value).detach().cpu().contiguous()
        array = array.float() if array.is_floating_point() else array
        self._constants.append(self._arrays.from_array(array.numpy(), name))
        return name

    def slice(self, x: str, start: int, end: int | None, *, axis: int) -> str:
        """Add `x[start:end]` on an axis."""
        ends = [2**63 - 1 if end is None else end]
        return self("Slice", x, *map(self.constant, ([start], ends, [axis])))

    def input(self, name: str, dtype: str, shape: list[int | str]) -> str:
        """Add an input of the graph; return its name, which differs in a subgraph."""
        name = self._new_name(name) if self._is_subgraph else name
        self._inputs.append(self._value(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: str, shape: list[int | str]) -> None:
        """Make a value an output of the graph."""
        name = self._new_name(name) if self._is_subgraph else name
        self._nodes.append(self._helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, dtype, shape))

    def subgraph(self) -> "_Graph":
        """Return an empty graph for an attribute of an operator."""
        return _Graph(self)

    def to_graph(self) -> Any:
        """Return an `onnx.GraphProto`."""
        constants = [] if self._is_subgraph else self._constants
        return self._helper.make_graph(self._nodes, "bilm", self._inputs, self._outputs, constants)

    def to_model(self) -> Any:
        """Return an `onnx.ModelProto`."""
        return self._helper.make_model(
            self.to_graph(),
            producer_name=PRODUCER,
            producer_version=elmore.__version__,
            ir_version=_IR_VERSION,
            opset_imports=[self._helper.make_opsetid("", _OPSET)],
        )

    def _value(self, name: str, dtype: str, shape: list[int | str]) -> Any:
        return self._helper.make_tensor_value_info(name, getattr(self.types, dtype), shape)

    def _new_name(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers)}"
