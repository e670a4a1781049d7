"""GPT-2's byte-pair tokenizer: vocab.json and merges.txt, or tokenizer.json, in GGUF's format."""
import json

from refused import Refused

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def load(folder, name):
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def text_of(token):
    return token["content"] if isinstance(token, dict) else token


class Tokenizer:
    def __init__(self, folder, size, config):
        ids, merges = self.model(folder)
        special = set()
        for token, number in load(folder, "added_tokens.json").items():
            ids.setdefault(token, number)
        for added in load(folder, "tokenizer.json").get("added_tokens", []):
            ids.setdefault(added["content"], added["id"])
            special |= {added["content"]} if added.get("special") else set()
        self.settings = load(folder, "tokenizer_config.json")
        for number, added in self.settings.get("added_tokens_decoder", {}).items():
            ids.setdefault(added["content"], int(number))
            special |= {added["content"]} if added.get("special") else set()
        named = {**self.settings, **load(folder, "special_tokens_map.json")}
        roles = ("bos", "eos", "unk", "pad")
        special |= {text_of(named[f"{role}_token"]) for role in roles if named.get(f"{role}_token")}
        if max(ids.values()) >= size:
            raise Refused(f"the tokenizer has token {max(ids.values())}, the model only {size} tokens: check that both belong to the same model")

        self.merges, self.tokens, self.types = merges, [None] * size, [UNUSED] * size
        words = load(folder, "tokenizer.json").get("model", {}).get("vocab") or load(folder, "vocab.json")
        for token, number in ids.items():
            self.tokens[number] = token
            self.types[number] = CONTROL if token in special else NORMAL if token in words else USER_DEFINED
        for number, token in enumerate(self.tokens):  # padding rows of the embedding matrix
            self.tokens[number] = token if token is not None else f"[PAD{number}]"
        self.ids = {}
        for role in roles:
            number = config.get(f"{role}_token_id")
            if number is None and named.get(f"{role}_token"):
                number = ids.get(text_of(named[f"{role}_token"]))
            if number is not None and 0 <= number < size:
                self.ids[role] = number
                self.types[number] = CONTROL

    @staticmethod
    def model(folder):
        words, lines = load(folder, "vocab.json"), folder / "merges.txt"
        if words and lines.exists():
            merges = [line for line in lines.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#version")]
            return words, merges
        model = load(folder, "tokenizer.json").get("model", {})
        if model.get("type") != "BPE":
            raise Refused(f"{folder}: neither vocab.json with merges.txt nor a BPE tokenizer.json: download the tokenizer, too")
        return dict(model["vocab"]), [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
