"""Policies written in Python."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from numpy.typing import ArrayLike

from . import _palimpsest

Needs = str | Iterable[str] | Mapping[str, int]


@runtime_checkable
class Policy(Protocol):
    """What `register` takes: a class without arguments, or an object, with two members.

    `needs` names the inputs, and only these are computed:

    ==================  ==============================================================================================
    ``attention``       ``head.attention``: weights of each step
    ``attention_max``   the same, max over the query group and the step's queries
    ``attention_window``  weights of the last n queries, at evictions: ``{"attention_window": 32}``
    ``attention_sum``   with a window: ``head.attention_sum``, weights of all queries so far
    ``keys``, ``values``  ``head.keys``, ``head.values``, at evictions
    ``query_moments``   ``head.query_mean``, ``head.query_covariance``
    ``ordered``         tokens oldest first, without empty slots
    ``on_insert``       with keys or values: `score` gets the new tokens only, once
    ==================  ==============================================================================================

    ``score(head)`` returns an array of ``len(head.positions)`` numbers, converted to float32. The method evicts the token
    with the lowest. It is called for one head at a time, on the engine's threads, and must not keep state:
    ``head.score`` has each token's previous score, which moves with the token.
    """

    needs: Needs

    def score(self, head: _palimpsest.Head) -> ArrayLike:
        """One number for each of the head's tokens; the lowest is evicted."""
        ...


_classes: dict[str, object] = {}
_lock = threading.Lock()
T = TypeVar("T")


def _needs(policy: object, name: str) -> dict[str, int]:
    needs: Needs = getattr(policy, "needs", ())
    if isinstance(needs, str):
        needs = (needs,)
    given = {str(k): int(n) for k, n in needs.items()} if isinstance(needs, Mapping) else {str(each): 0 for each in needs}
    known = _palimpsest.policy_needs()
    for each in given:
        if each not in known:
            near = difflib.get_close_matches(each, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known)}"
            raise _palimpsest.Error(f"policy '{name}' needs '{each}', which is unknown; {hint}")
    return given


def _make(name: str) -> tuple[object, dict[str, int]]:
    made = _classes[name]
    policy = made() if isinstance(made, type) else made
    return policy, _needs(policy, name)


def register(name: str, policy: T | None = None, *, summary: str = "") -> Callable[[T], T] | T:
    """Registers a policy under a name, which is then valid in every method of this process.

        @palimpsest.register("fading-max")
        class FadingMax:
            needs = "attention"

            def score(self, head):
                return np.maximum(head.score * np.float32(0.99) ** head.inserted, head.attention)

        model.generate("Once upon a time", method="random:policy=fading-max,budget=64")

    A second registration of the same name replaces the policy for sessions opened later, so that a notebook's cell can be
    run again. Exceptions in `score` are raised as `PolicyError` by the call that ran the step, with the exception as
    ``__cause__``; in a server they end the request with the same sentence.

    Args:
        name: lower-case letters, digits and dashes; not the name of an included policy.
        policy: a class without arguments, or an object (see `Policy`). Without it, a decorator.
        summary: one line for lists; the first line of the docstring if empty.

    Raises:
        Error: the name is taken or has other characters, the policy has no `score`, or `needs` has an unknown name.
    """

    def add(given: T) -> T:
        if not callable(getattr(given, "score", None)):
            raise _palimpsest.Error(f"policy '{name}' has no function score(head): define it")
        if not isinstance(getattr(given, "needs", ()), property):  # of instances: checked when a session makes one
            _needs(given, name)
        with _lock:
            if name not in _classes:
                text = summary or (given.__doc__ or "written in Python").strip().splitlines()[0]
                _palimpsest.register_policy(name, text, lambda: _make(name))
            _classes[name] = given
        return given

    return add if policy is None else add(policy)
