"""The zoo's transformers as lists of layers, from the keys of `model` as a run's configuration has them,
all written out. src/graph/network/zoo_transformers.cpp makes the same layers."""
from .checkpoint import CannotRead

FAMILIES = {"gpt2": "gpt2", "gpt2_124m": "gpt2", "llama": "llama", "llama_tiny": "llama", "vit": "vit",
            "vit_b_16": "vit"}


def layers_of(model, where):
    """The layers of `model`, which has `zoo`. Dropout, which evaluation passes over, is left out."""
    family = FAMILIES.get(model["zoo"])
    if family is None:
        raise CannotRead(f"{where}: model is {model['zoo']} of the zoo, whose layers the checkpoint does not hold; "
                         "--model FILE names a `model:` section that lists them")
    missing = [key for key in ("layers", "width", "heads", "classes", "eps", "bias") if key not in model]
    if missing:
        raise CannotRead(f"{where}: model lacks {', '.join(missing)}; a run's config.yaml has all keys")
    return {"gpt2": gpt2, "llama": llama, "vit": vit}[family](Stack(model))


class Stack:
    """Layers that read the one before unless `inputs` says otherwise."""

    def __init__(self, model):
        self.model, self.layers = model, []
        self.width, self.heads = int(model["width"]), int(model["heads"])
        self.kv_heads = int(model.get("kv_heads", self.heads))
        self.head_dim = int(model.get("head_dim", self.width // self.heads))
        self.queries, self.keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.blocks = range(int(model["layers"]))

    @property
    def last(self):
        return self.layers[-1]["name"]

    def add(self, name, kind, **keys):
        self.layers.append({"name": name, "kind": kind, **keys})

    def positions(self, name, **keys):
        context = {"context": self.model["context"]} if "context" in self.model else {}
        self.add(name, "position_embedding", **context, **keys)

    def norm(self, name, kind="layer_norm"):
        self.add(name, kind, eps=self.model["eps"], bias=self.model["bias"])

    def linear(self, name, features, **keys):
        self.add(name, "linear", **{"features": features, "bias": self.model["bias"], **keys})

    def attention(self, name, **keys):
        self.add(name, "attention", heads=self.heads, kv_heads=self.kv_heads, **keys)

    def head(self, embedding):
        tied = {"weight_of": embedding} if self.model.get("tied") else {}
        self.linear("lm_head", int(self.model["classes"]), bias=False, **tied)

    def hidden(self, usual):
        return int(self.model.get("hidden", usual))

    def perceptron(self, names):
        self.linear(names[0], self.hidden(4 * self.width))
        self.add(names[1], "gelu", approximate=self.model.get("approximate", "none"))
        self.linear(names[2], self.width)


def gpt2(net):
    net.add("transformer.wte", "embedding", features=net.width, vocabulary=int(net.model["classes"]))
    net.positions("transformer.wpe")
    for i in net.blocks:
        block, x = f"transformer.h.{i}.", net.last
        net.norm(block + "ln_1")
        net.linear(block + "attn.c_attn", net.queries + 2 * net.keys)
        net.attention(block + "attn", causal=True)
        net.linear(block + "attn.c_proj", net.width)
        net.add(block + "add_1", "add", inputs=[x, net.last])
        x = net.last
        net.norm(block + "ln_2")
        net.perceptron([f"{block}mlp.{name}" for name in ("c_fc", "gelu", "c_proj")])
        net.add(block + "add_2", "add", inputs=[x, net.last])
    net.norm("transformer.ln_f")
    net.head("transformer.wte")
    return net.layers


def llama(net):
    rope = net.model.get("rope") or {}
    net.add("model.embed_tokens", "embedding", features=net.width, vocabulary=int(net.model["classes"]))
    for i in net.blocks:
        block, x = f"model.layers.{i}.", net.last
        attention, mlp = block + "self_attn", block + "mlp."
        net.norm(block + "input_layernorm", "rms_norm")
        normed = net.last
        for part, features in (("q", net.queries), ("k", net.keys), ("v", net.keys)):
            net.linear(f"{attention}.{part}_proj", features, inputs=[normed])
        for part, heads in (("q", net.heads), ("k", net.kv_heads)):
            net.add(f"{attention}.rope_{part}", "rope", heads=heads, inputs=[f"{attention}.{part}_proj"], **rope)
        net.attention(attention, causal=True, inputs=[f"{attention}.{name}" for name in ("rope_q", "rope_k", "v_proj")])
        net.linear(attention + ".o_proj", net.width)
        net.add(block + "add_1", "add", inputs=[x, net.last])
        x = net.last
        net.norm(block + "post_attention_layernorm", "rms_norm")
        normed = net.last
        for part in ("gate_proj", "up_proj"):
            net.linear(mlp + part, net.hidden(-(-(8 * net.width // 3) // 32) * 32), inputs=[normed])
        net.add(mlp + "act_fn", "silu", inputs=[mlp + "gate_proj"])
        net.add(mlp + "mul", "multiply", inputs=[mlp + "act_fn", mlp + "up_proj"])
        net.linear(mlp + "down_proj", net.width)
        net.add(block + "add_2", "add", inputs=[x, net.last])
    net.norm("model.norm", "rms_norm")
    net.head("model.embed_tokens")
    return net.layers


def vit(net):
    patch = int(net.model["patch"])
    net.add("conv_proj", "conv2d", channels=net.width, kernel=patch, stride=patch, bias=net.model["bias"])
    net.add("class_token", "class_token")
    net.positions("encoder.pos_embedding", tensor="encoder.pos_embedding")
    for i in net.blocks:
        block, x = f"encoder.layers.encoder_layer_{i}.", net.last
        attention = block + "self_attention"
        net.norm(block + "ln_1")
        net.linear(attention + ".in_proj", net.queries + 2 * net.keys, prefix=attention + ".in_proj_")
        net.attention(attention)
        net.linear(attention + ".out_proj", net.width)
        net.add(block + "add_1", "add", inputs=[x, net.last])
        x = net.last
        net.norm(block + "ln_2")
        net.perceptron([f"{block}mlp.{name}" for name in (0, 1, 3)])
        net.add(block + "add_2", "add", inputs=[x, net.last])
    net.norm("encoder.ln")
    net.add("heads.token", "select")
    net.linear("heads.head", int(net.model["classes"]))
    return net.layers
