"""The optional half of the build: hot files are compiled with mypyc where a C compiler is at hand.

Without mypyc or a compiler the very same files serve as plain Python; nothing may fail because of it.
"""

from setuptools import setup

setup()
