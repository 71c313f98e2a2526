"""Tokens of an OpenID Connect issuer (the extra ``oidc``): whose they are, by the issuer's keys.

``tokens`` verifies a token, ``keys`` has the issuer's keys, ``fetching`` asks for them.
"""
