"""Other systems on the same servers and books, each a program in the virtualenv `.venv-peers`.

A program here knows nothing of our engine. It says `ready`, then reads orders (JSON, one to a line)
from its standard input and answers each with a line when all of it is done.
"""
