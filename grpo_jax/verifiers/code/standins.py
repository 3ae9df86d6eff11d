"""What tests see of a model's program: stand-ins whose calls leave the judge's process and bring back plain values."""

import builtins
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from grpo_jax.verifiers.code import values

_PROTOCOL = (StopIteration, StopAsyncIteration)
"""They end a loop of the tests in silence, so a program raises another class in their place."""

Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends a request to the program's process and returns its reply."""


class CandidateOver(BaseException):
    """The program's process is gone. No test can catch this by accident."""


class UnsupportedTestError(Exception):
    """A test needs what only a program in the same process could do, such as a callback."""


class Program:
    """Makes the stand-ins of one program.

    Attributes:
        unsupported: What a test has asked for that cannot be had, or nothing.
    """

    def __init__(self, ask: Ask) -> None:
        self.unsupported = ""
        self._ask = ask
        self._exceptions: dict[str, type[BaseException]] = {}

    def stand_in(self, name: str, description: list[Any]) -> Any:
        """The stand-in for one of the program's names.

        Args:
            name: The name.
            description: One of ``candidate.KINDS``, and the names of an exception's classes.

        Returns:
            An exception class, a stand-in, or a plain value.
        """
        if description[0] == "module" and name in sys.stdlib_module_names:
            return importlib.import_module(name)
        if description[0] == "exception":
            base = self._builtin(description[1][1:])
            self._exceptions[name] = type(name, (base,), {})
            return self._exceptions[name]
        if description[0] == "value":
            return self.request({"name": name})
        return StandIn(self, {"name": name})

    def request(self, request: dict[str, Any], arguments: tuple | None = None, keywords: dict | None = None) -> Any:
        """Gets an object's value, or calls it; changes that it makes to lists, dictionaries and sets come back.

        Args:
            request: Names the object, and an attribute of it.
            arguments: Positional arguments of a call.
            keywords: Keyword arguments of a call.

        Returns:
            A plain value or a stand-in.

        Raises:
            BaseException: what the program raised, as the nearest built-in class, or one that it defines.
        """
        if arguments is not None:
            request = {**request, "arguments": self._encoded(arguments), "keywords": self._encoded(keywords or {})}
        reply = self._ask(request)
        if "raised" in reply:
            raise self._exception(reply)
        if "arguments" in reply:
            for ours, theirs in zip(arguments or (), self._decoded(reply["arguments"]), strict=True):
                _update(ours, theirs)
        return self._decoded(reply["value"])

    def _encoded(self, value: Any) -> Any:
        def refer(other: Any) -> list[Any]:
            if isinstance(other, StandIn):
                return ["object", next(iter(other._request.values()))]
            if self._is_from_program(other):
                # Whatever comes of that is the program's doing.
                raise UnsupportedTestError(f"an argument of type {type(other).__name__}")
            self.unsupported = f"an argument of type {type(other).__name__}"
            raise UnsupportedTestError(self.unsupported)

        return values.encode(value, refer)

    def _is_from_program(self, value: Any) -> bool:
        """Whether tests got a value that cannot be sent, such as a string's method, from what the program made."""
        is_method = isinstance(value, types.BuiltinMethodType) and not isinstance(value.__self__, types.ModuleType)
        is_exception = any(kind is value or kind is type(value) for kind in self._exceptions.values())
        return isinstance(value, types.ModuleType) or is_method or is_exception

    def _decoded(self, message: Any) -> Any:
        return values.decode(message, lambda content: StandIn(self, {"object": content[0]}, content[1]))

    def _exception(self, reply: dict[str, Any]) -> BaseException:
        names = [str(name) for name in reply["raised"]]
        known = next((self._exceptions[name] for name in names if name in self._exceptions), None)
        kind = known or self._builtin(names)
        try:
            return kind(reply.get("message"))
        except TypeError:
            # UnicodeDecodeError and its like want more.
            return Exception(reply.get("message"))

    @staticmethod
    def _builtin(names: list[str]) -> type[BaseException]:
        for name in names:
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, _PROTOCOL):
                return RuntimeError
            if isinstance(kind, type) and issubclass(kind, Exception):
                return kind
        # SystemExit and its like must not end the judge.
        return Exception


class StandIn:
    """An object in the program's process. It equals itself only: what else it equals is not for the program to say."""

    def __init__(self, program: Program, request: dict[str, Any], classes: list[str] | None = None) -> None:
        self.__dict__.update(_program=program, _request=request, _classes=classes or [])

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the object."""
        return self._program.request(self._request, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the object."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.request({**self._request, "attribute": name})

    def __instancecheck__(self, instance: Any) -> bool:
        """Whether a stand-in is an instance of this class, by the class's name."""
        return isinstance(instance, StandIn) and self._request.get("name") in instance._classes

    def _operate(self, operator: str, *arguments: Any) -> Any:
        return self._program.request({**self._request, "attribute": operator}, arguments, {})

    def __len__(self) -> int:
        return self._operate("__len__")

    def __bool__(self) -> bool:
        return self._operate("__bool__") is True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._operate("__iter__"))

    def __next__(self) -> Any:
        return self._operate("__next__")

    def __contains__(self, item: Any) -> bool:
        return self._operate("__contains__", item) is True

    def __getitem__(self, key: Any) -> Any:
        return self._operate("__getitem__", key)

    def __setitem__(self, key: Any, item: Any) -> None:
        self._operate("__setitem__", key, item)

    def __str__(self) -> str:
        return self._operate("__str__")


def _update(ours: Any, theirs: Any) -> None:
    if type(ours) is not type(theirs):
        return
    if type(ours) is list:
        ours[:] = theirs
    elif type(ours) in (dict, set):
        ours.clear()
        ours.update(theirs)
