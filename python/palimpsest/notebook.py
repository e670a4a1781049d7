"""For notebooks: the text, with evicted tokens faded."""

from __future__ import annotations

import html

import numpy as np

from .model import Model
from .session import Session


class Fading:
    """A session's text, in which each token is as dark as the share of heads that still hold it.

    Shows itself in a notebook; `shares` has the numbers, float [tokens].
    """

    def __init__(self, model: Model, session: Session) -> None:
        shape = model.shape
        self.tokens = session.tokens
        self.shares = np.zeros(len(self.tokens))
        heads = [(layer, head) for layer, count in enumerate(shape["kv_heads"]) for head in range(count)]
        for layer, head in heads:
            self.shares[np.asarray(session.positions(layer, head))] += 1 / len(heads)
        self._pieces = [model.detokenize([token]) for token in self.tokens]
        self._title = session.method.split(":")[0]

    def _repr_html_(self) -> str:
        words = "".join(
            f'<span title="token {i}: in {share:.0%} of the heads" style="opacity:{0.15 + 0.85 * share:.2f}">'
            f"{html.escape(piece)}</span>"
            for i, (piece, share) in enumerate(zip(self._pieces, self.shares, strict=True))
        )
        kept = float(self.shares.mean()) if len(self.shares) else 0.0
        return (
            f'<div style="font-family:serif;white-space:pre-wrap;max-width:48em">{words}</div>'
            f"<small>{html.escape(self._title)}: {len(self.tokens)} tokens, {kept:.0%} in the cache</small>"
        )


def fading_text(model: Model, session: Session) -> Fading:
    """What a session still holds of its text. Raises Error on devices other than the CPU."""
    return Fading(model, session)
