"""Random Llamas, with rotary positions and queries, keys and values of layers of their own; and random ViTs."""

from draw_language import DrawLanguage
from draw_policies import DrawPolicies
from draws import Draw


class Blocks:
    """Blocks of attention or of an MLP, added to what is before them."""

    def blocks(self, layers, width, causal):
        put = lambda kind, **keys: self.named(layers, kind, **keys)
        for _ in range(self.whole(1, 2)):
            before = layers[-1]["name"]
            kind = self.one("rms_norm", "layer_norm", None)
            normed = put(kind) if kind else before
            if self.chance(0.7):
                self.attention(layers, normed, causal)
            else:
                put("linear", features=self.one(4, 8))
                put(self.one("gelu", "silu", "relu"))
            put("linear", features=width, **({"bias": False} if self.chance(0.3) else {}))
            if self.chance(0.85):
                put("add", inputs=[before, layers[-1]["name"]])

    def attention(self, layers, normed, causal):
        """Three linear layers, of which queries and keys may be turned, or one."""
        put = lambda kind, **keys: self.named(layers, kind, **keys)
        heads, kv = self.one((2, 2), (2, 1), (1, 1))
        wide = self.one(2, 4)
        keys = {"heads": heads, "causal": causal} if causal or self.chance(0.3) else {"heads": heads}
        if kv != heads:
            keys["kv_heads"] = kv
        self.maybe(keys, "probabilities", 0.15, "fp32")
        self.maybe(keys, "score_gradients", 0.15, "fp32")
        self.maybe(keys, "keep_probabilities", 0.3, True)
        if self.chance(0.3):
            put("linear", features=(heads + 2 * kv) * wide, inputs=[normed])
            put("attention", **keys)
            return
        turned = {}
        self.maybe(turned, "pairing", 0.4, "interleaved")
        self.maybe(turned, "base", 0.4, 100)
        if wide == 4:
            self.maybe(turned, "rotary", 0.3, 2)
        inputs = []
        for count in (heads, kv, kv):
            bias = {"bias": False} if self.chance(0.6) else {}
            inputs.append(put("linear", features=count * wide, inputs=[normed], **bias))
        if self.chance(0.75):
            for i, count in enumerate((heads, kv)):
                inputs[i] = put("rope", heads=count, inputs=[inputs[i]], **turned)
        put("attention", inputs=inputs, **keys)


class DrawLlama(Blocks, DrawPolicies, DrawLanguage):
    def network(self, shape, classes):
        layers, width = [], self.one(4, 8)
        self.named(layers, "embedding", vocabulary=shape[0], features=width)
        self.blocks(layers, width, causal=True)
        self.named(layers, "rms_norm")
        self.named(layers, "linear", features="classes", bias=False)
        return layers


class DrawVit(Blocks, DrawPolicies, Draw):
    def network(self, shape, classes):
        layers, width = [], self.one(4, 8)
        _, h, w = shape
        kernel = self.whole(1, min(2, h, w))
        positions = (h // kernel) * (w // kernel) + 1
        self.named(layers, "conv2d", channels=width, kernel=kernel, stride=kernel)
        self.named(layers, "class_token")
        if self.chance(0.7):
            self.named(layers, "position_embedding", context=positions)
        self.blocks(layers, width, causal=False)
        self.named(layers, self.one("layer_norm", "rms_norm"))
        self.named(layers, "select", position=self.whole(0, positions - 1))
        self.named(layers, "linear", features="classes")
        return layers

    def shape(self, classes):
        return (self.whole(1, 4), self.whole(2, 4), self.whole(2, 4))
