"""The HTTP door: routes, watch streams, and the one place where an error becomes a status.

``app`` puts the routes together and ``server`` listens. One module per noun: ``tree``, ``multi``,
``watch``, ``sessions``, ``locks``, ``elections``, ``operations``. ``queries``, ``requests`` and
``door`` read what was asked and write what is answered; ``convert`` turns messages into commands
and results into messages. Nothing here decides anything about the data.
"""
