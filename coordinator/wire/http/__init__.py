"""The HTTP door: the routes by HTTP, and the one place where an error becomes a response.

``server`` listens, ``slim`` answers plain requests, ``full_door`` loads aiohttp for all others:
``app`` puts the routes together, ``connection`` bounds what a client may do, ``adapter`` stands
between aiohttp and ``coordinator.wire.routes``. ``openapi`` describes all.
"""
