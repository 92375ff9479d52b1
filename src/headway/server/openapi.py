"""The OpenAPI document of the routes, made from their types. Served as `/api/openapi.json`, committed
as `docs/reference/openapi.json`, and read by `tools/typescript.py`.

A handler names the type that it reads (`call.read(Submit)`, `call.query(Filter)`), a route the type
that it answers; this only puts them together.
"""

import inspect
import re
from collections.abc import Iterable
from typing import Any

import msgspec

import headway
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Handler, Route

_READS = re.compile(r"\bcall\.(read|query)\((\w+)\)")
_PARAMETER = re.compile(r"\{(\w+)\}")
Schema = JsonObject


def document(routes: Iterable[Route]) -> Schema:
    """The whole document, as plain data."""
    chosen = [route for route in routes if route.answer is not None]
    inputs = {id(route): _inputs(route.handler) for route in chosen}
    types = [contract.ErrorAnswer]
    for route in chosen:
        types += [route.answer, *inputs[id(route)].values()]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    names = {name: _short(name) for name in components}
    components = {names[name]: _renamed(schema, names) for name, schema in components.items()}
    error, *rest = (_renamed(schema, names) for schema in schemas)
    following = iter(rest)
    paths: dict[str, Schema] = {}
    for route in chosen:
        answer = next(following)
        read = {what: next(following) for what in inputs[id(route)]}
        operation = _operation(route, answer, error, read, components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headway", "version": headway.__version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _short(name: str) -> str:
    """msgspec tells types of one name apart by their modules: `headway.server.api.jobs.Submit` is
    `JobsSubmit` here, and an answer keeps its own name.
    """
    *modules, own = name.split(".")
    if not modules or modules[-1] == "contract":
        return own
    return modules[-1].capitalize() + own


def _renamed(schema: object, names: dict[str, str]) -> Any:
    """The schema with its references to the short names."""
    if isinstance(schema, list):
        return [_renamed(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _renamed(value, names) for key, value in schema.items()}
    if isinstance(found.get("$ref"), str):
        folder, _, name = found["$ref"].rpartition("/")
        found["$ref"] = f"{folder}/{names.get(name, name)}"
    return found


def _inputs(handler: Handler) -> JsonObject:
    """`{"read": type of the body, "query": type of the query}`, each where the handler has one."""
    found = {}
    for how, name in _READS.findall(inspect.getsource(handler)):
        kind = handler.__globals__.get(name)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found[how] = kind
    return found


def _operation(
    route: Route, answer: Schema, error: Schema, read: dict[str, Schema], components: Schema
) -> Schema:
    operation: Schema = {
        "operationId": f"{route.handler.__module__.rsplit('.', 1)[-1]}_{route.handler.__name__}",
        "summary": _summary(route.handler),
        "x-role": route.role.name.lower(),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(route.path)
        ],
        "responses": {
            "200": {"description": "done", "content": {"application/json": {"schema": answer}}},
            "default": {
                "description": "it could not be done",
                "content": {"application/json": {"schema": error}},
            },
        },
    }
    if "query" in read:
        name = read["query"]["$ref"].rsplit("/", 1)[-1]
        fields = components[name]["properties"]
        operation["parameters"] += [
            {"name": field, "in": "query", "schema": schema} for field, schema in fields.items()
        ]
    if "read" in read:
        operation["requestBody"] = {"content": {"application/json": {"schema": read["read"]}}}
    return operation


def _summary(handler: Handler) -> str:
    return (inspect.getdoc(handler) or "").split("\n\n")[0].replace("\n", " ")
