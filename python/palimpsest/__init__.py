"""Palimpsest: language models in constant memory.

A KV cache has a fixed number of tokens. When it is full, an eviction policy selects a token, and the new token is written
into its slot. This package runs GGUF models with the methods of the papers, and with policies written in Python.

    import palimpsest

    model = palimpsest.Model()                                   # the default model; Model("model.gguf") for another
    for text in model.generate("The Lost Kite", max_tokens=60, method="h2o", budget=128):
        print(text, end="", flush=True)

Errors are `palimpsest.Error`, a ValueError: one line with the problem and the remedy.
"""

from . import evaluate
from ._method import method_text, methods
from ._palimpsest import Error, Head, PolicyError, policies, version
from ._policy import Policy, register
from ._views import StepArray, StepPassed
from .hub import catalogue, pull, pulled
from .memory import HeadMemory, MemoryMap
from .model import Generation, Model, Score, default_model
from .server import Server
from .session import Session

__version__ = version
__all__ = [
    "Error", "Generation", "Head", "HeadMemory", "MemoryMap", "Model", "Policy", "PolicyError", "Score", "Server", "Session",
    "StepArray", "StepPassed", "catalogue", "default_model", "evaluate", "method_text", "methods", "policies", "pull", "pulled",
    "register",
]  # fmt: skip
