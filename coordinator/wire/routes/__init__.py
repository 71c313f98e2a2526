"""The routes, by noun: what is asked of a member and what it answers, through whichever door.

One module per noun: ``tree``, ``multi``, ``watch``, ``sessions``, ``locks`` with ``lock_admin``,
``elections``, ``grants``, ``limits``, ``admin``. ``queries``, ``paths``, ``etags``, ``conditions``
and ``door`` read what was asked and write what is answered. Nothing here knows HTTP's grammar or
decides anything about the data.
"""
