"""Python functions as tools of a model: their JSON schema, and a call of one.

A function is described by its name, its docstring and the types of its parameters, and nothing is guessed: a parameter
without a type that JSON has is refused when the tool is made.  What a model gives is checked against these types
before the function is called; what does not fit is told to the model, and nothing is called.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from branchmem import Step
from branchmem.chat import Call
from branchmem.errors.agent import InvalidTool, ToolRefused

_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_LISTS: Final = (list, Sequence, tuple)
_MAPPINGS: Final = (dict, Mapping)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    function: Callable[..., Any]
    #: The types of the arguments, by name.
    hints: Mapping[str, Any]
    #: The parameter that takes the step in which it is called, which the model does not know of.
    step: str | None = None

    @classmethod
    def of(cls, function: Callable[..., Any] | Tool) -> Tool:
        """A function with type hints as a tool.

        `Annotated[str, "what it is"]` describes a parameter; one that is annotated `Step` is given the step.
        Raises: InvalidTool for what cannot be described in JSON.
        """
        if isinstance(function, Tool):
            return function
        name = getattr(function, "__name__", "")
        if not callable(function) or not name.isidentifier():
            raise InvalidTool(name or repr(function)[:60], "a tool is a function with a name: give a def")
        try:
            hints = get_type_hints(function, include_extras=True)
            parameters = inspect.signature(function).parameters
        except (NameError, TypeError, ValueError) as error:
            raise InvalidTool(name, f"its types cannot be read: {error}") from None
        properties: dict[str, Any] = {}
        required: list[str] = []
        step = None
        for parameter in parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidTool(name, f"parameter {parameter.name} has no name that an argument could bear")
            if parameter.name not in hints:
                raise InvalidTool(name, f"parameter {parameter.name} has no type: annotate it")
            hint = hints[parameter.name]
            if isinstance(hint, type) and issubclass(hint, Step):
                step = parameter.name
                continue
            properties[parameter.name] = _schema(name, parameter.name, hint)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        typed = {name: hints[name] for name in properties}
        return cls(name, inspect.cleandoc(function.__doc__ or ""), schema, function, typed, step)

    @property
    def wire(self) -> dict[str, Any]:
        """The form in which endpoints take it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}

    @property
    def is_async(self) -> bool:
        """Whether its function is one that is awaited."""
        return inspect.iscoroutinefunction(self.function)

    def arguments(self, call: Call, step: Step) -> dict[str, Any]:
        """What the function is called with.  Raises: ToolRefused where the model gave something else than asked for."""
        try:
            given = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            raise ToolRefused(self.name, "its arguments are no JSON") from None
        if not isinstance(given, dict):
            raise ToolRefused(self.name, "its arguments are no JSON object")
        unknown, missing = given.keys() - self.hints.keys(), set(self.schema["required"]) - given.keys()
        if unknown or missing:
            what = f"unknown {', '.join(sorted(unknown))}" if unknown else f"missing {', '.join(sorted(missing))}"
            raise ToolRefused(self.name, f"{what}; it takes {', '.join(self.hints) or 'nothing'}")
        taken = {name: _taken(self.name, name, self.hints[name], value) for name, value in given.items()}
        return taken if self.step is None else {**taken, self.step: step}

    def text(self, value: object) -> str:
        """What a result says to the model: a string as it is, anything else as JSON.  Raises: InvalidTool."""
        if isinstance(value, str):
            return value
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            why = f"it returned a {type(value).__name__}, which is no JSON: return text, numbers, lists or mappings"
            raise InvalidTool(self.name, why) from None


def chosen(tools: Mapping[str, Tool], call: Call) -> Tool:
    """The tool that a model means.  Raises: ToolRefused where there is none."""
    tool = tools.get(call.name)
    if tool is None:
        raise ToolRefused(call.name, f"there is no such tool, only {', '.join(tools) or 'none at all'}")
    return tool


def _schema(tool: str, name: str, hint: Any) -> dict[str, Any]:
    """The JSON schema of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        described = " ".join(note for note in args[1:] if isinstance(note, str))
        schema = _schema(tool, name, args[0])
        return {**schema, "description": described} if described else schema
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    values = list(args) if origin is Literal else [member.value for member in hint] if is_enum else []
    if values and all(type(value) in _PLAIN for value in values):
        return {"enum": values}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(tool, name, arg) for arg in args]}
    if hint in _LISTS or (origin in _LISTS and (origin is not tuple or args[1:] == (...,))):
        return {"type": "array", "items": _schema(tool, name, args[0])} if args else {"type": "array"}
    if hint in _MAPPINGS or (origin in _MAPPINGS and args[0] is str):
        return {"type": "object", "additionalProperties": _schema(tool, name, args[1])} if args else {"type": "object"}
    raise InvalidTool(tool, f"parameter {name} is a {hint!r:.60}, which JSON has not: take text, numbers, lists, dicts")


def _taken(tool: str, name: str, hint: Any, value: Any) -> Any:
    """A value of JSON as the function takes it.  Raises: ToolRefused where it is of another type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _taken(tool, name, args[0], value)
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in _PLAIN:
        if type(value) is hint:
            return value
    elif origin is Literal:
        if any(type(value) is type(one) and value == one for one in args):
            return value
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if any(value == member.value for member in hint):
            return hint(value)
    elif origin in (Union, types.UnionType):
        for arg in args:
            try:
                return _taken(tool, name, arg, value)
            except ToolRefused:
                continue
    elif isinstance(value, list) and (hint in _LISTS or origin in _LISTS):
        items = [_taken(tool, name, args[0], item) for item in value] if args else value
        return tuple(items) if tuple in (hint, origin) else items
    elif isinstance(value, dict) and (hint in _MAPPINGS or origin in _MAPPINGS):
        return {key: _taken(tool, name, args[1], item) for key, item in value.items()} if args else value
    raise ToolRefused(tool, f"{name} does not fit {json.dumps(_schema(tool, name, hint))}")
