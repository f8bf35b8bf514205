"""Texts of kernels, each made once: many tests call one kernel, and its text takes as long as a small launch."""

from functools import lru_cache

from attncc.codegen.render import render

rendered = lru_cache(maxsize=200)(render)
