"""For notebooks: the text, with evicted tokens faded."""

from __future__ import annotations

import html

from .session import Session


class Fading:
    """A session's text, in which each token is as dark as the share of heads that still hold it.

    Shows itself in a notebook; `memory` has the numbers, a `MemoryMap`.
    """

    def __init__(self, session: Session) -> None:
        self.memory = session.memory_map()
        self._pieces = session._pieces(self.memory.ids)
        self._title = session.method.split(":")[0]

    def _repr_html_(self) -> str:
        share, first = self.memory.share, self.memory.first
        words = "".join(
            f'<span title="token {first + i}: in {each:.0%} of the heads" style="opacity:{0.15 + 0.85 * each:.2f}">'
            f"{html.escape(piece)}</span>"
            for i, (piece, each) in enumerate(zip(self._pieces, share, strict=True))
        )
        kept = float(share.mean()) if len(share) else 0.0
        return (
            f'<div style="font-family:serif;white-space:pre-wrap;max-width:48em">{words}</div>'
            f"<small>{html.escape(self._title)}: {self.memory.next} tokens, {kept:.0%} in the cache</small>"
        )


def fading_text(session: Session) -> Fading:
    """What a session still holds of its text: of the first 65,536 tokens. Raises Error for methods without a cache."""
    return Fading(session)
