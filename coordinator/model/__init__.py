"""The values that several rooms speak of, each written once; nothing here does anything.

A value is a ``msgspec.Struct`` with ``frozen=True`` (or a named tuple). From its definition come
its body in JSON and msgpack (``coordinator.wire.codec``) and its schema in ``/openapi.json``
(``coordinator.wire.http.schemas``). One module for each noun.

How to add a field
------------------
Write it into the struct, and set it where the struct is made. That is all: the body, the strict
reading, the client and the schema have it.

How to add a value
------------------
1. Define it here. What a client sends is a request, ``forbid_unknown_fields=True``: it is read
   strictly, and written without what has its default. What a member says is an answer: it is
   written whole, and read so that a client lives with what a later server adds.
2. Bounds and words are part of the type: ``Count``, ``Positive``, ``ShortText``,
   ``Annotated[int, Meta(ge=1, le=SIZE_MAX)]``, ``Annotated[str, one_of("leave", "stay")]``, a
   ``StrEnum``. ``described(...)`` is what the schema says of the field. ``bytes`` travel as
   ``data`` or ``data_base64``, and need a description (the noun: "the data").
3. A name that differs in bodies is ``field(name="recursive")``. A field of an answer that is not
   said while it has its default is ``Annotated[..., LEFT_OUT]``; one that no body carries is
   ``INTERNAL``. While such a one is true, others may go by another name (``or_called``), by two
   (``also_called``), or be left out (``unless``): so one value serves a lock and an election.
4. Kinds that share a place (the lines of a stream, the operations of a multi) are tagged:
   ``tag_field="type", tag="bookmark"``; their union is read by ``union_from_body``.
5. A door answers with ``door.reply(request, value, ...)`` and reads with
   ``from_body(Kind, body)``; a client sends the value and reads with ``reader(Kind)``.
6. A kind that is the body of a route, or that others refer to by name, gets its line in
   ``KINDS`` of ``coordinator/wire/http/openapi_schemas.py``.
"""
