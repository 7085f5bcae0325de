"""Four neighbouring elements of an array in one memory instruction (``ld.v4``, ``st.v4``).

Numba loads one element at a time, and the compiler cannot merge the loads because it does not
know that the address is a multiple of 16 bytes.  With scalar loads an inner loop would spend as
many instructions on shared memory as on arithmetic.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

__all__ = ["ALIGNMENT", "load4", "store4"]

# The third argument of ``cuda.shared.array`` for arrays that are accessed with these functions.
# The simulator does not support alignment and needs none.
ALIGNMENT = None if config.ENABLE_CUDASIM else 16

_BYTES = 16  # of the widest memory instruction: four float32 or two float64


def _vectors(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> list[Any]:
    """Pointers to the 16-byte vectors that make up elements ``index .. index + 3``."""
    element = context.get_data_type(array_type.dtype)
    lanes = _BYTES * 8 // array_type.dtype.bitwidth
    data = context.make_array(array_type)(context, builder, array).data
    first = builder.bitcast(
        builder.gep(data, [index]),
        ir.VectorType(element, lanes).as_pointer(data.type.addrspace),
    )
    return [builder.gep(first, [ir.Constant(ir.IntType(32), i)]) for i in range(4 // lanes)]


@intrinsic
def load4(typingctx: Any, array: Any, index: Any) -> Any:
    """Elements ``index .. index + 3`` of a flat array, as a tuple.

    The index is a multiple of 4 and the array begins at a multiple of 16 bytes, as all device
    arrays do.
    """
    signature = types.UniTuple(array.dtype, 4)(array, index)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        elements = []
        for pointer in _vectors(context, builder, signature.args[0], *arguments):
            vector = builder.load(pointer, align=_BYTES)
            for lane in range(vector.type.count):
                position = ir.Constant(ir.IntType(32), lane)
                elements.append(builder.extract_element(vector, position))
        return context.make_tuple(builder, signature.return_type, elements)

    return signature, codegen


@intrinsic
def store4(typingctx: Any, array: Any, index: Any, values: Any) -> Any:
    """Store a tuple of four to elements ``index .. index + 3``; see `load4`."""
    signature = types.none(array, index, values)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, values = arguments
        elements = [builder.extract_value(values, i) for i in range(4)]
        for pointer in _vectors(context, builder, signature.args[0], array, index):
            lanes = pointer.type.pointee.count
            vector = ir.Constant(pointer.type.pointee, ir.Undefined)
            for lane in range(lanes):
                position = ir.Constant(ir.IntType(32), lane)
                vector = builder.insert_element(vector, elements.pop(0), position)
            builder.store(vector, pointer, align=_BYTES)
        return context.get_dummy_value()

    return signature, codegen


# Numba's cache identifies intrinsics by an id that is random by default: kernels that use them
# would be compiled again by every process.
for _intrinsic, _identity in ((load4, "hybridstereo.load4"), (store4, "hybridstereo.store4")):
    _intrinsic._set_uuid(_identity)


if config.ENABLE_CUDASIM:  # there kernels are plain Python

    def load4(array: Any, index: Any) -> Any:
        """Elements ``index .. index + 3`` of a flat array, as a tuple."""
        return tuple(array[index : index + 4])

    def store4(array: Any, index: Any, values: Any) -> None:
        """Store a tuple of four to elements ``index .. index + 3``."""
        array[index : index + 4] = values
