"""A model as ONNX: model.onnx in float32, model_int8.onnx with weights of 8 bits, and a session that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from minibert.errors import UserError, installing
from minibert.export.graph import INPUTS, NamedOutputs, dynamic_shapes, example, plain, quietly

Arrays = Mapping[str, NDArray[Any]]
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OPSET = 20  # the first with Gelu
FLOAT32, INT8 = "model.onnx", "model_int8.onnx"
ONE_FILE = 2_000_000_000  # bytes; protobuf, and so a file of ONNX, ends at 2^31


def check_packages() -> None:
    """Raises UserError where a package that this format needs is not there."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        raise UserError(
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed", where="--format onnx",
            fix=installing(*PACKAGES),
        )  # fmt: skip


def onnx_program(model: nn.Module, most_tokens: int) -> Any:
    """The model as torch.onnx.ONNXProgram, in memory: inputs and outputs by name, batch and sequence of any size.

    Raises: whatever the exporter raises: that is a bug, no user's mistake.
    """
    named = NamedOutputs(plain(model)).eval()
    with quietly(), torch.no_grad():
        outputs = list(named(*example()))
        program = torch.onnx.export(
            named, example(), dynamo=True, opset_version=OPSET, input_names=list(INPUTS), output_names=outputs,
            dynamic_shapes=dynamic_shapes(most_tokens), verbose=False,
        )  # fmt: skip
    assert program is not None
    forget_where(program.model)
    return program


def forget_where(model: Any) -> None:
    """Take out what the exporter notes of this machine: the paths and lines that each node was traced at."""
    for part in (model.graph, *model.functions.values()):
        part.metadata_props.clear()
        for node in part:
            node.metadata_props.clear()
            for value in node.outputs:
                value.metadata_props.clear()
        for value in (*part.inputs, *part.initializers.values()):
            value.metadata_props.clear()


def save_onnx(program: Any, folder: Path) -> bool:
    """Write model.onnx. Returns whether its weights lie beside it, in model.onnx.data: those of 2 GB and more do."""
    weights = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    large = bool(weights >= ONE_FILE)
    with quietly():
        program.save(folder / FLOAT32, external_data=large)
    return large


def save_int8(folder: Path, large: bool) -> None:
    """model.onnx -> model_int8.onnx: 8 bits for embeddings and products' weights, a scale for each output.

    Activations become 8 bits as they are computed (dynamic quantisation), so no data is needed.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(folder / FLOAT32)
    separate_tied(model)
    del model.graph.value_info[:]  # shapes noted of weights that the quantiser will have turned
    with quietly():
        quantize_dynamic(
            model, folder / INT8, op_types_to_quantize=["MatMul", "Gather"], per_channel=True,
            weight_type=QuantType.QInt8, use_external_data_format=large,
        )  # fmt: skip


def separate_tied(model: Any) -> None:
    """Turn round for good the weights that a node turns each time: the quantiser does not see through it.

    That is the output matrix of a masked language model, its largest product, which is the word embeddings.
    """
    from onnx import numpy_helper

    weights = {weight.name: weight for weight in model.graph.initializer}
    for node in [node for node in model.graph.node if node.op_type == "Transpose" and node.input[0] in weights]:
        turned = numpy_helper.to_array(weights[node.input[0]]).T.copy()
        model.graph.initializer.append(numpy_helper.from_array(turned, node.output[0]))
        model.graph.node.remove(node)


def open_onnx(path: Path) -> Callable[[Arrays], dict[str, NDArray[Any]]]:
    """What runs the file on the CPU with as many threads as torch: inputs by name -> outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle, it would keep torch's cores busy
    options.log_severity_level = 4  # what is wrong is raised as well
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(rows: Arrays) -> dict[str, NDArray[Any]]:
        return dict(zip(names, map(np.asarray, session.run(names, dict(rows))), strict=True))

    return run
