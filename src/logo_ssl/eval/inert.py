"""How is a pickle read without running what it names? Tensors are rebuilt; every other name becomes an inert object.

This module has the two names that `torch.load(pickle_module=...)` asks for: `Unpickler` and `load`.
"""

import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch._utils

REBUILT: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): torch._utils._rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
    ("torch", "Size"): torch.Size,
}
"""All that a pickle may call; storages are torch's own to find."""


class Inert:
    """Stands for whatever is not read: it takes any argument, state and item, and does nothing."""

    def __call__(self, *_: Any, **__: Any) -> "Inert":
        """Nothing new."""
        return self

    def _ignore(self, *_: Any, **__: Any) -> None:
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = add = _ignore


class Unpickler(pickle.Unpickler):
    """Imports nothing, and calls only what rebuilds tensors."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """What stands for a name: nearly always an inert class."""
        name = (module_name, global_name)
        if name == ("collections", "OrderedDict"):
            return OrderedDict
        if name in REBUILT:  # wrapped, since a pickle may set attributes of what it finds
            return lambda *arguments: REBUILT[name](*arguments)
        return Inert


def load(file: Any, **options: Any) -> Any:
    """Unpickle an open file."""
    return Unpickler(file, **options).load()
