"""Models whose fields are described by the texts under them.

The texts are read when a schema or a page is made of a model, which takes parsing its source. pydantic
would read them for every model that is imported (``use_attribute_docstrings``), in any run of a program.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Described:
    """A base of models; a field's description in its JSON Schema is the text under the field."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of the model, in which its fields are described."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        assert issubclass(cls, BaseModel), cls
        for name, text in descriptions(cls).items():
            title = name if name in properties else cls.model_fields[name].alias
            properties[title].setdefault("description", text)
        return schema


@functools.cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return what each field of a model says: its ``Field(description=...)``, else the text under it.

    Fields without either are left out.
    """
    said = {name: field.description for name, field in model.model_fields.items()}
    for base in model.__mro__:
        # a model made by create_model has no source; its fields have descriptions
        if any(name in said and not said[name] for name in inspect.get_annotations(base)):
            under = _texts_under(base)
            said |= {name: under.get(name) for name, text in said.items() if not text}
    return {name: text for name, text in said.items() if text}


def _texts_under(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field in the source of a class."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(definition, ast.ClassDef), model
    return dict(_pairs(definition))


def _pairs(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                yield name, inspect.cleandoc(said)
