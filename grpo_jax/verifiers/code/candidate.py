"""Sandbox program that loads a model's program and answers calls of its functions with plain values.

It never learns what answers the judge expects. The model's program may take over this process; all it can do then
is to send other replies, which the judge trusts no more than these.
"""

import functools
import inspect
import itertools
import operator
import os
import types
from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.verifiers.code import loading, values
from grpo_jax.verifiers.code.lines import Lines

MODULE = "solution"
MAX_MESSAGE_CHARACTERS = 1000
KINDS = ("exception", "callable", "module", "value")
"""What a name of the program can stand for; an exception's classes are listed beside it."""


def main() -> int:
    """Loads the program of the first request, then serves calls until there are no more."""
    lines = Lines()
    asked = lines.receive()
    if asked is None:
        return 0
    loading.clear_traces()
    server = _Server()
    lines.send(server.load(asked["source"]))
    while (request := lines.receive()) is not None:
        lines.send(server.answer(request))
    # What the program has registered to run at the end concerns nobody.
    os._exit(0)


class _Server:
    def __init__(self) -> None:
        self._module = types.ModuleType(MODULE)
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count()

    def load(self, source: str) -> dict[str, Any]:
        try:
            self._module = loading.load(source, MODULE)
        except loading.SyntaxFault:
            return {"fault": "syntax error"}
        except BaseException as error:
            # Also SystemExit and its like: a program that ends itself has not answered.
            return _raised(error)
        names = vars(self._module)
        return {"names": {name: self._described(value) for name, value in names.items() if name[:2] != "__"}}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            target = self._target(request)
            if "arguments" not in request:
                return {"value": values.encode(target, self._refer)}
            arguments, keywords = (values.decode(request[name], self._referred) for name in ("arguments", "keywords"))
            before = values.encode(arguments, self._refer)
            value = target(*arguments, **keywords)
            reply = {"value": values.encode(value, self._refer)}
            after = values.encode(arguments, self._refer)
            return reply if after == before else {**reply, "arguments": after}
        except BaseException as error:
            return _raised(error)

    def _target(self, request: dict[str, Any]) -> Any:
        """What a request names: an object, or one of the program's names, and then an attribute of it."""
        found = self._objects[request["object"]] if "object" in request else self._find(request["name"])
        return found if request.get("attribute") is None else _attribute(found, request["attribute"])

    def _find(self, name: str) -> Any:
        found: Any = self._module
        for part in name.split("."):
            if hasattr(found, part):
                found = getattr(found, part)
            elif found is self._module and hasattr(getattr(found, "Solution", None), part):
                # A widespread form: the function is a method of a class of this name.
                found = getattr(found.Solution(), part)
            else:
                raise NameError(f"name {part!r} is not defined")
        return found

    def _refer(self, value: Any) -> list[Any]:
        number = next(self._numbers)
        self._objects[number] = value
        return ["object", number, [kind.__name__ for kind in type(value).__mro__], callable(value)]

    def _referred(self, content: list[Any]) -> Any:
        return self._find(content[0]) if isinstance(content[0], str) else self._objects[content[0]]

    def _described(self, value: Any) -> Any:
        """How a judge's stand-in for a name must behave."""
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", [kind.__name__ for kind in value.__mro__]]
        if inspect.isroutine(value) or isinstance(value, type):
            return ["callable", []]
        return ["module" if isinstance(value, types.ModuleType) else "value", []]


# Looked up on the type, as the language does, and with plain results.
_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "__len__": len,
    "__bool__": bool,
    "__iter__": list,
    "__next__": next,
    "__str__": str,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
}


def _attribute(owner: Any, name: str) -> Any:
    return functools.partial(_OPERATORS[name], owner) if name in _OPERATORS else getattr(owner, name)


def _raised(error: BaseException) -> dict[str, Any]:
    try:
        message = str(error)[:MAX_MESSAGE_CHARACTERS]
    except BaseException:
        message = ""
    return {"raised": [kind.__name__ for kind in type(error).__mro__], "message": message}
