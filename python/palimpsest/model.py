"""Models: text in, text out."""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _palimpsest
from ._method import method_text, split_options
from .notebook import fading_text
from .session import Session, Tokens, _ids

Prompt = str | Tokens


def default_model() -> str:
    """The path of the default model: `$PALIMPSEST_MODEL`, else the included one, which writes simple stories."""
    given = os.environ.get("PALIMPSEST_MODEL")
    return given or str(pathlib.Path(__file__).parent / "models" / "palimpsest-stories.gguf")


@dataclass(frozen=True)
class Score:
    """What a model thinks of a text."""

    tokens: list[int]
    """The text's tokens, BOS first if the model expects one."""
    logprobs: NDArray[np.float32]
    """ln of the probability of each token but the first, [tokens - 1]."""

    @property
    def logprob(self) -> float:
        """Sum of `logprobs`: ln of the probability of the text."""
        return float(np.sum(self.logprobs, dtype=np.float64))

    @property
    def perplexity(self) -> float:
        """exp of the mean loss per token."""
        return float(np.exp(-np.mean(self.logprobs, dtype=np.float64)))


class Generation(Iterator[str], AsyncIterator[str]):
    """A text being generated: an iterator, and an async iterator, of its pieces.

    A piece is whole UTF-8 characters, never empty; text that may begin a stop string is held back until that is decided.
    """

    def __init__(self, native: _palimpsest.Generation, session: Session) -> None:
        self._native, self.session = native, session
        self._pieces: list[str] = []
        self.token_ids: list[int] = []

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        while (piece := self._native.next()) is not None:
            text, token = piece
            if token >= 0:
                self.token_ids.append(token)
            if text:
                self._pieces.append(text)
                return text
        raise StopIteration

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> str:
        text = await asyncio.to_thread(next, self, None)
        if text is None:
            raise StopAsyncIteration
        return text

    @property
    def text(self) -> str:
        """All of the text; generates the rest."""
        for _ in self:
            pass
        return "".join(self._pieces)

    @property
    def stop_reason(self) -> str:
        """'length', 'stop' (a stop string) or 'end' (the model ended its text); '' while it goes on."""
        return self._native.stop_reason

    @property
    def seed(self) -> int:
        """The seed in use."""
        return self._native.seed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes cache, sampler and text to a file, which `palimpsest run --restore` continues from, too."""
        self._native.save(os.fspath(path))

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """In a notebook: the session's text so far, evicted tokens faded."""
        return fading_text(self.session)._repr_html_()

    def __repr__(self) -> str:
        return f"<Generation of {self._native.tokens} tokens, {self.stop_reason or 'going on'}>"


class Model:
    """A GGUF model. Its sessions share the weights; they may run in different threads."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        threads: int | None = None,
        device: str = "cpu",
        portable: bool = False,
        context: int = 0,
        rope_scaling: str | None = None,
        rope_scale: float | None = None,
        rope_freq_base: float | None = None,
        rope_freq_scale: float | None = None,
        yarn_orig_ctx: int | None = None,
        yarn_ext_factor: float | None = None,
        yarn_attn_factor: float | None = None,
        yarn_beta_slow: float | None = None,
        yarn_beta_fast: float | None = None,
    ) -> None:
        """Opens a model.

        Args:
            path: a GGUF file, or the name of a model that `pull` fetched; None: `default_model()`.
            threads: of each session's steps; None: one per core, one for very small models. The text does not depend on it.
            device: a ggml device, as ``palimpsest info --devices`` lists them.
            portable: use stock ggml operators on the CPU, too.
            context: max context in tokens, for models that choose RoPE factors by it; 0: the trained context.
            rope_scaling: "none", "linear", "yarn" or "dynamic", instead of the file's; the others as ``--rope-scale`` and so on
                of ``palimpsest run``; None: the file's.

        Raises:
            Error: no such file, not a model of a supported family, or a process that was forked after a model was opened.
        """
        file = default_model() if path is None else os.fspath(path)
        rope = {
            "rope_scale": rope_scale,
            "rope_freq_base": rope_freq_base,
            "rope_freq_scale": rope_freq_scale,
            "yarn_orig_ctx": yarn_orig_ctx,
            "yarn_ext_factor": yarn_ext_factor,
            "yarn_attn_factor": yarn_attn_factor,
            "yarn_beta_slow": yarn_beta_slow,
            "yarn_beta_fast": yarn_beta_fast,
        }
        given = {name: float(value) for name, value in rope.items() if value is not None}
        self._native = _palimpsest.Model(file, threads, device, portable, context, rope_scaling or "", given)

    def tokenize(self, text: str, *, bos: bool = True, special: bool = True) -> list[int]:
        """Token ids. `bos`: begins with BOS if the model expects one. `special`: reads text such as <|im_end|> as control
        tokens."""
        return list(self._native.tokenize(text, bos, special))

    def detokenize(self, tokens: Tokens, *, special: bool = False) -> str:
        """The text of tokens; `special`: with the text of control tokens. Bytes that are no UTF-8 become U+FFFD."""
        return self._native.detokenize(_ids(tokens), special).decode("utf-8", "replace")

    def session(
        self,
        method: str = "streaming",
        *,
        budget: int | None = None,
        cache_type: str = "f16",
        cache_type_v: str | None = None,
        chunk: int = 512,
        page_size: int = 64,
        layerwise: bool = False,
        attention: bool = False,
        record_memory: bool = False,
        **options: Any,
    ) -> Session:
        """A new sequence with its own cache.

        Args:
            method: see `method_text`.
            budget: tokens that stay in the cache, per head.
            cache_type: type of keys and values: f32, f16, bf16, q8_0, q4_0, q4, q3 or q2; `cache_type_v`: of values only.
            chunk: tokens of a prompt per step.
            page_size: slots of a page, a multiple of 16.
            layerwise: read a prompt layer by layer, each compressed before the next: less memory, the same result
                (``schedule=prompt`` methods).
            attention: keep the attention weights of decode steps, for `Session.attention`.
            record_memory: keep the times of evictions, for `MemoryMap.evicted_at`; at most a million.
            options: other keys of the method.
        """
        return Session(
            self._native, method, budget=budget, cache_type=cache_type, cache_type_v=cache_type_v, chunk=chunk,
            page_size=page_size, layerwise=layerwise, attention=attention, record_memory=record_memory, **options,
        )  # fmt: skip

    def _open(
        self, tokens: int, method: str, budget: int | None, compression_ratio: float | None, options: dict[str, Any]
    ) -> Session:
        """A session for a prompt of so many tokens."""
        own, keys = split_options(options)
        text = method_text(method, budget=budget, compression_ratio=compression_ratio, tokens=tokens, **keys)
        return self.session(text, **own)

    def generate(
        self,
        prompt: Prompt = "",
        *,
        max_tokens: int = 256,
        method: str = "streaming",
        budget: int | None = None,
        compression_ratio: float | None = None,
        stop: str | Sequence[str] = (),
        ignore_eos: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repeat_penalty: float | None = None,
        sampling: Mapping[str, Any] | None = None,
        seed: int | None = None,
        grammar: str = "",
        session: Session | None = None,
        **options: Any,
    ) -> Generation:
        """Continues a prompt. The same arguments give the text of ``palimpsest run --method ...``.

        Args:
            prompt: text, or tokens.
            max_tokens: to generate; -1: until the model ends its text.
            method, budget, compression_ratio, options: see `method_text`; `options` also has `cache_type`, `chunk` and the
                other arguments of `session`.
            stop: the text ends before the first of these.
            ignore_eos: continue after end-of-text tokens.
            temperature, top_k, top_p, min_p, repeat_penalty: sampling, as llama.cpp's; temperature 0: the likeliest token.
                None: what the model file recommends (`general.sampling.*`), else 0.8, 40, 0.95, 0.05, 1.
            sampling: more options under llama-server's names: ``{"dry_multiplier": 0.8, "xtc_probability": 0.5, ...}``, also
                `min_tokens`, `stop_token_ids`, `dry_sequence_breakers`, `samplers`.
            seed: the same seed gives the same text; None: another each time.
            grammar: GBNF that the text must match.
            session: continue this session; then give no method.

        Raises:
            Error: at once for invalid arguments; while iterating, as `Session.prefill`.
        """
        if isinstance(prompt, str):
            tokens = self.tokenize(prompt, bos=session is None or session.position == 0)
            if not tokens and self._native.bos >= 0 and session is None:
                tokens = [self._native.bos]
        else:
            tokens = _ids(prompt)
        if session is None:
            session = self._open(len(tokens), method, budget, compression_ratio, options)
        elif budget is not None or compression_ratio is not None or options:
            raise _palimpsest.Error("a session has its method already: give a method's options to Model.session")
        numbers = dict(sampling or {})
        named = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "repeat_penalty": repeat_penalty}
        numbers.update({name: value for name, value in named.items() if value is not None})
        breakers, order = numbers.pop("dry_sequence_breakers", None), numbers.pop("samplers", None)
        if order is not None and not isinstance(order, str):
            order = ";".join(order)
        min_tokens, stop_tokens = numbers.pop("min_tokens", 0), list(numbers.pop("stop_token_ids", ()))
        native = _palimpsest.Generation(
            session._native, tokens, max_tokens, [stop] if isinstance(stop, str) else list(stop), ignore_eos, numbers, breakers,
            order, min_tokens, stop_tokens, seed, grammar,
        )  # fmt: skip
        return Generation(native, session)

    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        template: str = "",
        special_in_messages: bool = False,
        stop: str | Sequence[str] = (),
        **arguments: Any,
    ) -> Generation:
        """The assistant's answer to messages in OpenAI's form, ``{"role": ..., "content": ...}``, or to one text.

        Args:
            template: a name, a file or the text of a chat template; "": the model's own.
            special_in_messages: control tokens in the texts of messages (``<|im_end|>``) have an effect; else they are
                plain text.
            stop, arguments: as `generate`.

        Raises:
            Error: the model has no template, or the template refuses the messages.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        session = arguments.get("session")
        prompt = self._native.chat_prompt(
            [(each["role"], each["content"]) for each in messages], template, special_in_messages,
            session is None or session.position == 0,
        )  # fmt: skip
        ends = [stop] if isinstance(stop, str) else list(stop)
        return self.generate(prompt["tokens"], stop=[*ends, *prompt["stop"]], **arguments)

    def score(
        self, texts: str | Iterable[str], *, method: str = "full", budget: int | None = None,
        compression_ratio: float | None = None, **options: Any,
    ) -> list[Score]:  # fmt: skip
        """Log-probabilities of texts, each read with a new cache."""
        scores = []
        for text in [texts] if isinstance(texts, str) else texts:
            tokens = self.tokenize(text, special=False)
            if len(tokens) < 2:
                raise _palimpsest.Error(f"{text!r}: {len(tokens)} tokens are too few to predict any")
            session = self._open(len(tokens), method, budget, compression_ratio, options)
            scores.append(Score(tokens, _palimpsest.log_likelihoods(session._native, tokens)))
        return scores

    def logits(
        self, prompt: Prompt, *, method: str = "full", budget: int | None = None,
        compression_ratio: float | None = None, **options: Any,
    ) -> NDArray[np.float32]:  # fmt: skip
        """The logits after every token of a prompt, float32 [tokens, vocabulary]."""
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else _ids(prompt)
        return self._open(len(tokens), method, budget, compression_ratio, options).read(tokens)

    @property
    def path(self) -> str:
        """The model's file."""
        return self._native.path

    @property
    def name(self) -> str:
        """The model's name in its file; "" if it has none."""
        return self._native.name

    @property
    def shape(self) -> dict[str, Any]:
        """layers, kv_heads (of each layer), key_width, value_width (of the widest), vocabulary, trained_context."""
        return dict(self._native.shape)

    @property
    def threads(self) -> int:
        """Threads of a session's steps."""
        return self._native.threads

    def __repr__(self) -> str:
        return f"<Model {self.name or pathlib.Path(self.path).name}>"
