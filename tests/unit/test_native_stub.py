"""_native.pyi says what the compiled module has: the same names, kinds, parameters and defaults."""

from __future__ import annotations

import ast
import types
from pathlib import Path
from typing import Any

import pytest
import trainperf
from trainperf import _native as native

STUB = ast.parse((Path(trainperf.__file__).parent / "_native.pyi").read_text())
FINAL_TYPES: dict[str, type] = {"int": int, "str": str, "tuple[str, ...]": tuple}

# A parameter: its name, where it may stand, and its default (REQUIRED for none).
Parameter = tuple[str, str, Any]
REQUIRED = "<required>"


def parameters(arguments: ast.arguments) -> list[Parameter]:
    positional = [*((a, "positional only") for a in arguments.posonlyargs), *((a, "either") for a in arguments.args)]
    defaults: list[Any] = [REQUIRED] * (len(positional) - len(arguments.defaults))
    defaults += [ast.literal_eval(default) for default in arguments.defaults]
    found = [(a.arg, kind, default) for (a, kind), default in zip(positional, defaults, strict=True)]
    for argument, default_node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        default = REQUIRED if default_node is None else ast.literal_eval(default_node)
        found.append((argument.arg, "keyword only", default))
    return [parameter for parameter in found if parameter[0] != "self"]


def documented_parameters(function: Any) -> list[Parameter]:
    """From the signature that starts the docstring, as neither pybind11 nor METH_FASTCALL gives another."""
    text = (function.__doc__ or "").strip()
    assert text, f"{function.__name__} has no docstring, so no signature"
    depth = 0
    signature = ""
    for char in text:
        depth += (char == "(") - (char == ")")
        signature += char
        if char == ")" and depth == 0:
            break
    definition = ast.parse(f"def {signature}: ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    return parameters(definition.args)


def stub_functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "property" or ast.unparse(d).endswith(".setter") for d in node.decorator_list)


def stub_class(name: str) -> ast.ClassDef:
    return next(node for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == name)


CONSTANTS = {
    node.target.id: node for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
}
FUNCTIONS = stub_functions(STUB.body)
CLASSES = [node.name for node in STUB.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
METHODS = [(name, method) for name in CLASSES for method in stub_functions(stub_class(name).body)]


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_module_and_the_stub_have_the_same_names() -> None:
    assert public(dir(native)) == {*CONSTANTS, *FUNCTIONS, *CLASSES}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_has_the_type_that_the_stub_says(name: str) -> None:
    annotation = ast.unparse(CONSTANTS[name].annotation)
    assert annotation.startswith("Final[")
    value = getattr(native, name)
    assert type(value) is FINAL_TYPES[annotation.removeprefix("Final[").removesuffix("]")]
    if isinstance(value, tuple):
        assert value
        assert all(type(item) is str for item in value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_takes_what_the_stub_says(name: str) -> None:
    assert documented_parameters(getattr(native, name)) == parameters(FUNCTIONS[name].args)


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_the_names_that_the_stub_says(name: str) -> None:
    body = stub_class(name).body
    constants = [ast.unparse(node.target) for node in body if isinstance(node, ast.AnnAssign)]
    assert public(dir(getattr(native, name))) == public([*stub_functions(body), *constants])


@pytest.mark.parametrize(("class_name", "name"), METHODS)
def test_method_takes_what_the_stub_says(class_name: str, name: str) -> None:
    node = stub_functions(stub_class(class_name).body)[name]
    member = getattr(getattr(native, class_name), name)
    if is_property(node):
        assert isinstance(member, (property, types.MemberDescriptorType, types.GetSetDescriptorType))
    else:
        assert documented_parameters(member) == parameters(node.args)


@pytest.mark.parametrize("name", [name for name, node in FUNCTIONS.items() if node.args.posonlyargs])
def test_mark_without_its_arguments_is_a_type_error(name: str) -> None:
    with pytest.raises(TypeError):
        getattr(native, name)()
