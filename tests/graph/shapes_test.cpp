// Shape inference against PyTorch's formulas, and every refusal with its exact message.
#include "graph/network/shapes.h"

#include <doctest/doctest.h>

#include "error.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

using config::LayerConfig;
using config::ModelConfig;

LayerConfig At(LayerConfig layer, int line) {
  layer.where = {"net.yaml", line, 7};
  return layer;
}
template <typename Change>
LayerConfig With(LayerConfig layer, Change change) {
  change(layer);
  return layer;
}

std::string MessageOf(const ModelConfig& model, const Shape& input = {1, 8, 8, 3}) {
  try {
    Resolve(model, input);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

struct WindowCase {
  std::array<int, 2> kernel, stride, padding, dilation;
  std::int64_t h, w;  // of the output for an input of 13 x 10
};
// h, w from torch.nn.Conv2d on zeros(1, 4, 13, 10).
const std::vector<WindowCase> kWindows = {
    {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 13, 10}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 7, 5},
    {{1, 1}, {2, 2}, {0, 0}, {1, 1}, 7, 5},   {{5, 3}, {1, 2}, {2, 0}, {1, 1}, 13, 4},
    {{3, 3}, {1, 1}, {0, 0}, {2, 3}, 9, 4},   {{2, 2}, {3, 3}, {0, 1}, {1, 1}, 4, 4},
    {{13, 10}, {1, 1}, {0, 0}, {1, 1}, 1, 1}, {{4, 4}, {2, 1}, {1, 2}, {3, 2}, 3, 8},
};

struct TransposedCase {
  std::array<int, 2> kernel, stride, padding, output_padding, dilation;
  std::int64_t h, w;  // of the output for an input of 7 x 5
};
// h, w from torch.nn.ConvTranspose2d on zeros(1, 4, 7, 5).
const std::vector<TransposedCase> kTransposed = {
    {{3, 3}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 7, 5},
    {{2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, 14, 10},
    {{3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 14, 10},
    {{4, 4}, {2, 2}, {1, 1}, {0, 0}, {1, 1}, 14, 10},
    {{5, 3}, {1, 2}, {2, 0}, {0, 1}, {1, 1}, 7, 12},
    {{3, 3}, {2, 1}, {0, 1}, {1, 0}, {2, 3}, 18, 9},
    {{1, 1}, {3, 3}, {0, 0}, {2, 2}, {1, 1}, 21, 15},
};

TEST_SUITE("cpu") {
  TEST_CASE("windows of transposed convolutions") {
    for (const TransposedCase& c : kTransposed) {
      LayerConfig conv = Layer("c", "conv_transpose2d");
      conv.channels = 6, conv.kernel = c.kernel, conv.stride = c.stride;
      conv.padding = c.padding, conv.output_padding = c.output_padding;
      conv.dilation = c.dilation, conv.groups = 2;
      const Network network = Resolve(Model({conv, Linear("fc", 10)}), {1, 7, 5, 4});
      const Node& node = network.nodes[0];
      CHECK(node.output == Shape{1, c.h, c.w, 6});
      CHECK(node.parameters[0].dims == std::vector<std::int64_t>{4, 3, c.kernel[0], c.kernel[1]});
      CHECK(node.trained_numel() == 4 * 3 * c.kernel[0] * c.kernel[1] + 6);
      CHECK(node.mflop == doctest::Approx(2e-6 * 7 * 5 * 4 * 3 * c.kernel[0] * c.kernel[1]));
      const layers::Fans fans = node.kind->fans(node.config);
      CHECK(fans.exact == 3 * c.kernel[0] * c.kernel[1]);
      CHECK(fans.reference == 6 * c.kernel[0] * c.kernel[1]);
    }
  }

  TEST_CASE("windows") {
    for (const WindowCase& c : kWindows) {
      LayerConfig conv = Conv("c", 6);
      conv.kernel = c.kernel;
      conv.stride = c.stride;
      conv.padding = c.padding;
      conv.dilation = c.dilation;
      conv.groups = 2;
      const Network network = Resolve(Model({conv, Linear("fc", 10)}), {1, 13, 10, 4});
      const Node& node = network.nodes[0];
      CHECK(node.output == Shape{1, c.h, c.w, 6});
      CHECK(node.trained_numel() == 6 * 2 * c.kernel[0] * c.kernel[1] + 6);
      CHECK(node.mflop == doctest::Approx(2e-6 * 6 * 2 * c.kernel[0] * c.kernel[1] * c.h * c.w));
    }
  }

  TEST_CASE("each kind's shape") {
    const auto shortcut = [](LayerConfig& l) {
      l.channels = 7;
      l.stride = {2, 2};
    };
    const ModelConfig model =
        Model({Conv("c", 4), Layer("b", "batch_norm"), Layer("r", "relu"),
               Window("m", "max_pool", 2, 2), Window("a", "avg_pool", 3, 1),
               With(Layer("s", "shortcut"), shortcut), Layer("d", "dropout"),
               Layer("two", "add", {"s", "d"}), Layer("t", "scale"), Layer("g", "global_avg_pool"),
               Linear("f", 12), Layer("n", "batch_norm"), Layer("x", "flatten"), Linear("fc", 10)});
    const Network network = Resolve(model, {99, 11, 10, 3});
    const std::vector<std::string> expected = {"11x10x4", "11x10x4", "11x10x4", "5x5x4", "3x3x4",
                                               "2x2x7",   "2x2x7",   "2x2x7",   "2x2x7", "7",
                                               "12",      "12",      "12",      "10"};
    std::vector<std::string> found;
    for (const Node& node : network.nodes) found.push_back(ToString(node.output));
    CHECK(found == expected);
    CHECK(network.nodes[7].inputs == std::vector<int>{6, 7});
    CHECK(network.nodes[9].config.kernel == std::array<int, 2>{2, 2});
    CHECK(network.trained_numel() == 112 + 8 + (12 * 7 + 12) + 24 + 130);
  }

  TEST_CASE("ceil_mode: the last window begins inside the input or the padding before it") {
    struct Case {
      int kernel, stride, padding;
      std::int64_t h, w;
    };
    // From torch.nn.MaxPool2d(..., ceil_mode=True) on zeros(1, 1, 13, 10).
    for (const Case& c : {Case{3, 2, 0, 6, 5},
                          {2, 2, 0, 7, 5},
                          {3, 2, 1, 7, 6},
                          {2, 3, 1, 5, 4},
                          {4, 3, 2, 5, 4},
                          {5, 2, 2, 7, 6}}) {
      const LayerConfig pool = With(Window("p", "max_pool", c.kernel, c.stride), [&](auto& l) {
        l.padding = {c.padding, c.padding}, l.ceil_mode = true;
      });
      const Network network = Resolve(Model({pool, Linear("fc", 10)}), {1, 13, 10, 4});
      CHECK(network.nodes[0].output == Shape{1, c.h, c.w, 4});
    }
  }

  TEST_CASE("ceil_mode: a window may be larger than what it looks at") {
    // torch.nn.MaxPool2d(2, 2, ceil_mode=True) on zeros(1, 1, 1, 1) gives 1 x 1; kernel 3 is
    // refused.
    const auto pool = [](int kernel) {
      return With(Window("p", "max_pool", kernel, 2), [](auto& l) { l.ceil_mode = true; });
    };
    CHECK(Resolve(Model({pool(2), Linear("fc", 10)}), {1, 1, 1, 4}).nodes[0].output ==
          Shape{1, 1, 1, 4});
    CHECK(MessageOf(Model({pool(3), Linear("fc", 10)}), {1, 1, 1, 4}) ==
          "layer p: kernel 3x3 is larger than the padded input 1x1 (input 4, padding 0x0)");
  }

  TEST_CASE("shapes of gates, norms, adaptive means and larger images") {
    const Network network =
        Resolve(Model({Conv("c", 4),
                       Layer("g", "global_avg_pool"),
                       Layer("first", "multiply", {"g", "c"}),
                       Layer("second", "multiply", {"first", "g"}),
                       Layer("same", "multiply", {"second", "second"}),
                       Layer("n", "layer_norm"),
                       With(Layer("q", "group_norm"), [](auto& l) { l.groups = 2; }),
                       Layer("s", "channel_scale"),
                       Layer("d", "stochastic_depth"),
                       With(Layer("u", "upsample"), [](auto& l) { l.scale = 3; }),
                       With(Layer("b", "upsample"), [](auto& l) { l.mode = "bilinear"; }),
                       With(Layer("p", "pixel_shuffle"), [](auto& l) { l.scale = 2; }),
                       Layer("w", "prelu"),
                       Layer("x", "elu"),
                       Layer("y", "softplus"),
                       Conv("z", 4),
                       With(Layer("v", "prelu"), [](auto& l) { l.per_channel = true; }),
                       With(Layer("a", "adaptive_avg_pool"),
                            [](auto& l) {
                              l.size = {7, 2};
                            }),
                       With(Layer("e", "adaptive_avg_pool"),
                            [](auto& l) {
                              l.size = {7, 1};
                            }),
                       Linear("fc", 10)}),
                {1, 11, 8, 3});
    std::vector<std::string> found;
    for (const Node& node : network.nodes) found.push_back(ToString(node.output));
    CHECK(found == std::vector<std::string>{"11x8x4",   "4",        "11x8x4",   "11x8x4",
                                            "11x8x4",   "11x8x4",   "11x8x4",   "11x8x4",
                                            "11x8x4",   "33x24x4",  "66x48x4",  "132x96x1",
                                            "132x96x1", "132x96x1", "132x96x1", "132x96x4",
                                            "132x96x4", "7x2x4",    "7x1x4",    "10"});
    CHECK(network.trained_numel() == 112 + 8 + 8 + 4 + 1 + (9 * 4 + 4) + 4 + (7 * 4 * 10 + 10));
  }

  TEST_CASE("refusals") {
    const LayerConfig fc = Linear("fc", 10);
    struct Case {
      ModelConfig model;
      std::string message;
    };
    const std::string at = "net.yaml:5:7: layer ";
    const std::vector<Case> cases = {
        {Model({}), "model: the network has no layers; expected `zoo` or `layers`"},
        {Model({Conv("a", 4),
                With(Conv("b", 8),
                     [](auto& l) {
                       l.stride = {2, 2};
                     }),
                At(Layer("join", "add", {"a", "b"}), 5), fc}),
         at + "join: shapes differ: 8x8x4 (a) and 4x4x8 (b)"},
        {Model({At(With(Conv("c", 4),
                        [](auto& l) {
                          l.kernel = {11, 3};
                        }),
                   5),
                fc}),
         at + "c: kernel 11x3 is larger than the padded input 10x10 (input 8x8x3, padding 1x1)"},
        {Model({At(With(Conv("c", 4),
                        [](auto& l) {
                          l.dilation = {6, 6};
                        }),
                   5),
                fc}),
         at + "c: kernel 3x3 (13x13 with its dilation) is larger than the padded input 10x10 "
              "(input 8x8x3, padding 1x1)"},
        {Model({At(Window("p", "max_pool", 9, 9), 5), fc}),
         at + "p: kernel 9x9 is larger than the padded input 8x8 (input 8x8x3, padding 0x0)"},
        {Model({At(With(Window("p", "max_pool", 2, 2),
                        [](auto& l) {
                          l.padding = {2, 2};
                        }),
                   5),
                fc}),
         at + "p: padding 2x2 is more than half of kernel 2x2"},
        {Model({At(With(Conv("c", 4), [](auto& l) { l.groups = 2; }), 5), fc}),
         at + "c: groups 2 must divide the input's channels 3 (input 8x8x3) and the output's 4"},
        {Model({At(Conv("c", 0), 5), fc}), at + "c: channels must be at least 1"},
        {Model({At(Linear("f", 0), 5)}), at + "f: features must be at least 1"},
        {Model({At(With(Conv("c", 4),
                        [](auto& l) {
                          l.stride = {0, 1};
                        }),
                   5),
                fc}),
         at + "c: kernel, stride and dilation must be at least 1"},
        {Model({At(With(Conv("c", 4),
                        [](auto& l) {
                          l.padding = {-1, 1};
                        }),
                   5),
                fc}),
         at + "c: padding must not be negative"},
        {Model({Conv("stem", 4), At(Layer("r", "relu", {"stam"}), 5), fc}),
         at + "r: unknown input 'stam'; did you mean 'stem'?"},
        {Model({At(Layer("r", "relu", {"zzzzzz"}), 5), fc}), at + "r: unknown input 'zzzzzz'"},
        {Model({At(Layer("r", "relu", {"c"}), 5), Conv("c", 4), fc}),
         at + "r: input c comes later; a layer stands after its inputs"},
        {Model({At(Layer("r", "relu", {"r"}), 5), fc}), at + "r: it cannot be its own input"},
        {Model({At(Conv("skip", 4), 5), Conv("c", 4, {"input"}), fc}),
         at + "skip: no layer uses its output (8x8x4); remove it or name it in `inputs`"},
        {Model({Conv("c", 4), At(Layer("r", "relu"), 5)}),
         at + "r: the last layer gives the logits: expected output 10 (model.classes), found "
              "8x8x4"},
        {Model({At(Linear("fc", 9), 5)}),
         at + "fc: the last layer gives the logits: expected output 10 (model.classes), found 9"},
        {Model({Conv("c", 4), At(Layer("join", "add"), 5), fc}),
         at + "join: add takes at least two `inputs`, found 1"},
        {Model({Conv("c", 4), At(Layer("r", "relu", {"c", "input"}), 5), fc}),
         at + "r: relu takes one input, found 2 in `inputs`"},
        {Model({Conv("c", 4), At(Layer("s", "scale", {"c", "input"}), 5), fc}),
         at + "s: scale takes one input, found 2 in `inputs`"},
        {Model({At(Layer("r", "rellu"), 5), fc}),
         at + "r: unknown kind 'rellu'; did you mean 'relu'?"},
        {Model({At(Conv("c", 4), 4), At(Conv("c", 4), 5), fc}),
         at + "c: a second layer of this name; the first is at net.yaml:4:7"},
        {Model({At(Conv("loss", 4), 5), fc}),
         at + "loss: the name is taken (`input`: the network's images, `loss`: the loss in the "
              "logs); choose another"},
        {Model({At(With(Layer("d", "dropout"), [](auto& l) { l.rate = 1; }), 5), fc}),
         at + "d: rate must be at least 0 and less than 1"},
        {Model({Conv("a", 4), Conv("b", 8), At(Layer("m", "multiply", {"a", "b"}), 5), fc}),
         at + "m: shapes differ: 8x8x4 (a) and 8x8x8 (b); a factor has the other's shape or one "
              "value for each channel"},
        {Model({Conv("a", 4), At(Layer("m", "multiply", {"a", "a", "a"}), 5), fc}),
         at + "m: multiply takes two `inputs`, found 3"},
        {Model({Conv("a", 4), At(With(Layer("n", "group_norm"), [](auto& l) { l.groups = 3; }), 5),
                fc}),
         at + "n: groups 3 must divide the input's channels 4 (input 8x8x4)"},
        {Model({At(With(Layer("u", "upsample"), [](auto& l) { l.scale = 1000000; }), 5), fc}),
         at + "u: its output would have 1.92e+14 values, expected at most 2^40; use fewer channels "
              "or features, or smaller images"},
        {Model({At(With(Conv("c", 4),
                        [](auto& l) {
                          l.kind = "conv_transpose2d", l.padding = {5, 1};
                        }),
                   5),
                fc}),
         at + "c: padding 5x1 leaves nothing of an output of 10x10 (input 8x8x3, kernel 3x3)"},
        {Model(
             {At(With(Conv("c", 4), [](auto& l) { l.kind = "conv_transpose2d", l.groups = 2; }), 5),
              fc}),
         at + "c: groups 2 must divide the input's channels 3 (input 8x8x3) and the output's 4"},
        {Model({At(With(Layer("p", "pixel_shuffle"), [](auto& l) { l.scale = 2; }), 5), fc}),
         at + "p: the input's channels 3 (input 8x8x3) must be a multiple of scale^2, 4"},
        {Model({At(With(Layer("s", "shortcut"), [](auto& l) { l.channels = 2; }), 5), fc}),
         at + "s: a shortcut only adds channels: input 8x8x3, channels 2"},
        {Model(
             {At(With(Layer("s", "slice"), [](auto& l) { l.first = 1, l.channels = 3; }), 5), fc}),
         at + "s: channels 1 to 3 of an input 8x8x3, whose last one is 2"},
    };
    for (const Case& c : cases) CHECK(MessageOf(c.model) == c.message);
  }

  TEST_CASE("a network without weights has nothing to train") {
    ModelConfig model = Model({Layer("pool", "global_avg_pool")});
    model.classes = 3;
    CHECK(
        MessageOf(model) ==
        "model: no layer has weights, so there is nothing to train; add a conv2d or linear layer");
  }

  TEST_CASE("a zoo model on images that are too small names the layer") {
    CHECK(MessageOf(Zoo("vgg11"), {1, 28, 28, 1}) ==
          "layer stage5.pool: kernel 2x2 is larger than the padded input 1x1 (input 512, padding "
          "0x0)");
    CHECK(MessageOf(Zoo("lenet"), {1, 32, 32, 3}) == "no error");
    CHECK(MessageOf(Zoo("resnet20"), {1, 28, 28, 1}) == "no error");
  }
}

}  // namespace
}  // namespace ada::graph::test
