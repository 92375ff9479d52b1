"""Writes `web/src/api/contract.ts`: the server's types for the page, from the OpenAPI document. Run
by `make docs`; a test compares.
"""

import json
import sys
from pathlib import Path
from typing import Any

from headway.server import openapi, routes

TARGET = Path(__file__).resolve().parents[1] / "web" / "src" / "api" / "contract.ts"
HEAD = "// Made by `make docs` from src/headway/server/contract.py; do not edit.\n"
PRIMITIVES = {
    "integer": "number",
    "number": "number",
    "string": "string",
    "boolean": "boolean",
    "null": "null",
}


def module() -> str:
    schemas = openapi.document(routes.ROUTES)["components"]["schemas"]
    return HEAD + "".join(f"\n{interface(name, schemas[name])}" for name in sorted(schemas))


def interface(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    lines = [f"/** {text} */" for text in [" ".join(schema.get("description", "").split())] if text]
    lines.append(f"export interface {name} {{")
    for field, kind in schema.get("properties", {}).items():
        # an answer always has its fields, but for those with a default, which old servers leave out
        mark = "" if field in required else "?"
        lines.append(
            f"  {json.dumps(field) if not field.isidentifier() else field}{mark}: {type_of(kind)};"
        )
    return "\n".join([*lines, "}", ""])


def type_of(schema: Any) -> str:
    if not isinstance(schema, dict):  # `items: false`: nothing may be in it
        return "never"
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"Array<{type_of(schema.get('items', {}))}>"
    if kind == "object":
        return f"Record<string, {type_of(schema.get('additionalProperties', {}))}>"
    return PRIMITIVES.get(str(kind), "unknown")


def main() -> int:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(module())
    return 0


if __name__ == "__main__":
    sys.exit(main())
