"""ROOM 5, pages for people: the console and the lessons, static, over the public HTTP API alone.

There is no code of the member here but what lists the files (``pages``). The pages are plain ES
modules and CSS, served as they are: no build step, nothing from another address.
"""
