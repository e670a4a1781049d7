"""GGUF names of the hyper-parameters and weights of each family: one class per family."""
from refused import Refused


def need(config, key, *allowed):
    """Refuses a model whose `key` is not in `allowed` (the first is the default of a missing key)."""
    value = config.get(key, allowed[0])
    if value not in allowed:
        raise Refused(f"{key} is {value!r} in config.json; supported: {' or '.join(map(repr, allowed))}")


class GptJ:
    """Attention and feed-forward in parallel, rotary positions on adjacent pairs, rows in Hugging Face's order."""
    architecture, tokenizer_adds_bos = "gptj", False

    def __init__(self, config):
        need(config, "activation_function", "gelu_new", "gelu_pytorch_tanh")
        if not config.get("rotary_dim"):
            raise Refused("rotary_dim is missing in config.json: GPT-J without rotary positions is unsupported")
        width, heads = config["n_embd"], config["n_head"]
        self.layers, self.vocabulary = config["n_layer"], config["vocab_size"]
        self.keys = {"context_length": config["n_positions"], "embedding_length": width, "block_count": self.layers,
                     "feed_forward_length": config.get("n_inner") or 4 * width, "attention.head_count": heads,
                     "attention.layer_norm_epsilon": float(config.get("layer_norm_epsilon", 1e-5)),
                     "rope.dimension_count": config["rotary_dim"], "vocab_size": self.vocabulary}
        self.prefix = "transformer."
        self.whole = {"wte.weight": "token_embd.weight", "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias",
                      "lm_head.weight": "output.weight", "lm_head.bias": "output.bias"}
        self.layer = "h."
        self.parts = {"ln_1": "attn_norm", "attn.q_proj": "attn_q", "attn.k_proj": "attn_k", "attn.v_proj": "attn_v",
                      "attn.out_proj": "attn_output", "mlp.fc_in": "ffn_up", "mlp.fc_out": "ffn_down"}
        self.unused = ("attn.bias", "attn.masked_bias", "attn.embed_positions")

    def prepared(self, name, tensor):
        return tensor


class Opt:
    """Learned positions, norms before attention and feed-forward, biases in all layers, output tied to the embedding."""
    architecture, tokenizer_adds_bos = "opt", True
    OFFSET = 2  # the first two rows of Hugging Face's position table are unused

    def __init__(self, config):
        if not config.get("do_layer_norm_before", True):
            raise Refused("do_layer_norm_before is false (opt-350m): norms after attention are unsupported; use another size of OPT")
        width = config["hidden_size"]
        if config.get("word_embed_proj_dim", width) != width:
            raise Refused(f"word_embed_proj_dim is {config['word_embed_proj_dim']}, hidden_size {width} (opt-350m): projected embeddings "
                          "cannot be run; use another size of OPT")
        need(config, "activation_function", "relu")
        need(config, "enable_bias", True)
        need(config, "layer_norm_elementwise_affine", True)
        need(config, "_remove_final_layer_norm", False)
        need(config, "tie_word_embeddings", True)
        self.layers, self.vocabulary = config["num_hidden_layers"], config["vocab_size"]
        self.keys = {"context_length": config["max_position_embeddings"], "embedding_length": width, "block_count": self.layers,
                     "feed_forward_length": config["ffn_dim"], "attention.head_count": config["num_attention_heads"],
                     "attention.layer_norm_epsilon": 1e-5, "vocab_size": self.vocabulary}
        self.prefix = "decoder."
        self.whole = {"embed_tokens.weight": "token_embd.weight", "embed_positions.weight": "position_embd.weight",
                      "final_layer_norm.weight": "output_norm.weight", "final_layer_norm.bias": "output_norm.bias"}
        self.layer = "layers."
        self.parts = {"self_attn_layer_norm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
                      "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output", "final_layer_norm": "ffn_norm", "fc1": "ffn_up",
                      "fc2": "ffn_down"}
        self.unused = ("lm_head.weight",)

    def prepared(self, name, tensor):
        if name != "position_embd.weight":
            return tensor
        rows = self.keys["context_length"]
        if len(tensor) != rows + self.OFFSET:
            raise Refused(f"embed_positions has {len(tensor)} rows; max_position_embeddings {rows} requires {rows + self.OFFSET}")
        return tensor[self.OFFSET:]


FAMILIES = {"gptj": GptJ, "opt": Opt}


def family_of(config):
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise Refused(f"model_type {kind!r}: supported: {' and '.join(FAMILIES)}; for other models use llama.cpp's convert_hf_to_gguf.py")
    return FAMILIES[kind](config)


def gguf_name(family, name):
    """A weight's name in GGUF; None: not needed. Refuses unknown names."""
    short = name.removeprefix("model.").removeprefix(family.prefix)
    if short in family.whole:
        return family.whole[short]
    if short in family.unused:
        return None
    if short.startswith(family.layer):
        number, _, rest = short[len(family.layer):].partition(".")
        module, _, kind = rest.rpartition(".")
        if rest in family.unused:
            return None
        if module in family.parts and kind in ("weight", "bias"):
            return f"blk.{int(number)}.{family.parts[module]}.{kind}"
    raise Refused(f"weight {name} does not belong to {family.architecture}: check that config.json belongs to these weights")
