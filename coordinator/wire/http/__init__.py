"""The HTTP door: aiohttp around the routes, and the one place where an error becomes a response.

``app`` puts the routes together, ``server`` listens, ``connection`` bounds what a client may do,
``adapter`` stands between aiohttp and ``coordinator.wire.routes``, ``openapi`` describes all.
"""
