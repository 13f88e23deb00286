"""The OpenAPI document as a whole, in short: what an endpoint takes and answers is a promise to clients."""

import runpy
from pathlib import Path
from typing import Any

from engine.http import application
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings, Token
from tests import golden

PROBLEM = {"$ref": "#/components/schemas/Problem"}


def shape(node: Any) -> str:
    """A schema in short; what this has no form for is told as it is."""
    if not isinstance(node, dict):
        return str(node)
    if "$ref" in node:
        return node["$ref"].rpartition("/")[2]
    left = {name: value for name, value in node.items() if name != "description"}
    kind, null = left.pop("type", ""), ""
    if isinstance(kind, list):
        kind, null = kind[0], "?"
    words = [f"{kind}{null}"] if kind and (kind != "object" or null) else []
    for least, most in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"), ("", "maxProperties")):
        if least in left or most in left:
            words.append(f"{left.pop(least, '')}..{left.pop(most, '')}")
    words += ["/" + left.pop("pattern") + "/"] if "pattern" in left else []
    words += ["|".join(map(str, left.pop("enum")))] if "enum" in left else []
    words += [f"of {shape(left.pop('items'))}"] if "items" in left else []
    words += [" or ".join(map(shape, left.pop("anyOf")))] if "anyOf" in left else []
    if "properties" in left:
        required, open_end = left.pop("required"), left.pop("additionalProperties", True)
        of = [f"{name}{'' if name in required else '?'}: {shape(one)}" for name, one in left.pop("properties").items()]
        words.append("{" + "; ".join(of) + ("; ..." if open_end else "") + "}")
    words += [f"{name}={shape(value)}" for name, value in left.items()]
    return " ".join(words) or "any"


def lines(found: dict[str, Any]) -> list[str]:
    """Each operation with its role, a line for each thing that it takes and answers; what was told before is not told again."""
    found_lines: list[str] = []
    seen: dict[str, str] = {}

    def tell(what: str, schema: Any) -> None:
        text = shape(schema)
        first = seen.setdefault(text, what)
        found_lines.append(f"  {what}: {text if first == what or len(text) < 60 else f'as {first}'}")

    for path, ways in found.items():
        for method, way in ways.items():
            name = f"{method.upper()} {path}"
            whole = f"{name} {way['operationId']} {way.get('x-role', 'nobody')} {'asks' if 'security' in way else ''}"
            found_lines.append(whole.rstrip())
            for one in way["parameters"]:
                tell(f"{one['in']} {one['name']}{'!' if one.get('required') else ''}", one["schema"])
            body = way.get("requestBody")
            if body is not None:
                tell(f"body of {name}{'!' if body['required'] else ''}", body["content"]["application/json"]["schema"])
            for status, answer in way["responses"].items():
                content = answer.get("content", {})
                for media_type, one in content.items() if status != "default" else ():
                    tell(f"{status} {media_type} of {name}", one["schema"])
                if not content:
                    found_lines.append(f"  {status}")
    return found_lines


#: What they declare is declared again in the test, where a recorder of lines sees it.
DECLARING = ("jobs/schemas", "jobs/jobs", "jobs/queues", "jobs/bananas", "jobs/events", "channels/endpoints", "channels/answers")


def test_what_the_document_promises_is_what_clients_were_promised() -> None:
    for module in DECLARING:
        runpy.run_path(str(Path(application.__file__).parent / f"{module}.py"))
    settings = HttpSettings(channels=ChannelSettings(), tokens=(Token(secret="r" * 32),))
    found = application.document(application.application(settings).routes, settings)
    problem = {"description": "A problem", "content": {"application/problem+json": {"schema": PROBLEM}}}
    assert all(way["responses"]["default"] == problem for ways in found["paths"].values() for way in ways.values())
    text = "\n".join([shape(found["components"]["schemas"]["Problem"]), *lines(found["paths"]), ""])
    golden.same("http/document.txt", text)
