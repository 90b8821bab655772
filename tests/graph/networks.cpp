// See networks.h.
#include "graph/networks.h"

namespace ada::graph::test {

config::ModelConfig PreActivation() {
  return Model({Conv("c1", 8), Layer("b1", "batch_norm"), Layer("r1", "relu"), Conv("c2", 8),
                Layer("b2", "batch_norm"), Layer("r2", "relu"), Layer("sum", "add", {"r2", "r1"}),
                Layer("r3", "relu"), Layer("again", "add", {"r3", "c1"}), Linear("fc", 10)});
}

config::ModelConfig Awkward() {
  return Model({Layer("r0", "relu"),
                Window("p0", "max_pool", 3, 1),
                Conv("c1", 4),
                Layer("b1", "batch_norm"),
                Layer("twice", "add", {"b1", "b1"}),
                Layer("d1", "dropout"),
                Window("p1", "max_pool", 3, 1),
                Conv("c2", 4, {"d1"}),
                Layer("b2", "batch_norm"),
                Layer("three", "add", {"b2", "d1", "twice"}),
                Layer("r3", "relu"),
                Window("p3", "avg_pool", 3, 1, {"r3"}),
                Window("p4", "max_pool", 3, 1, {"r3"}),
                Layer("join", "add", {"p3", "p1"}),
                Layer("all", "add", {"join", "p4"}),
                Layer("flat", "flatten"),
                Linear("f1", 16),
                Layer("n1", "batch_norm"),
                Layer("rf", "relu"),
                Linear("f2", 10)});
}

config::ModelConfig BareShortcut() {
  return Model({Conv("c0", 4), Conv("c1", 4, {"c0"}), Layer("b1", "batch_norm"),
                Conv("s1", 4, {"c0"}), Layer("j1", "add", {"b1", "s1"}), Layer("r1", "relu"),
                Conv("c2", 4), Layer("b2", "batch_norm"), Conv("s2", 4, {"r1"}),
                Conv("t2", 4, {"r1"}), Layer("u2", "add", {"s2", "t2"}),
                Layer("j2", "add", {"u2", "b2"}), Layer("r2", "relu"), Linear("fc", 10)});
}

config::ModelConfig WithInput() {
  return Model({Conv("c1", 3), Layer("b1", "batch_norm"), Layer("join", "add", {"input", "b1"}),
                Layer("r1", "relu"), Conv("c2", 3), Layer("b2", "batch_norm"),
                Layer("end", "add", {"r1", "b2"}), Layer("pool", "global_avg_pool"),
                Linear("fc", 10)});
}

config::ModelConfig WithCasts() {
  return Model({Layer("early", "scale"), Conv("c1", 4), Layer("b1", "batch_norm"),
                Layer("r1", "relu"), Layer("down", "scale"), Conv("c2", 4),
                Layer("up", "scale", {"r1"}), Layer("join", "add", {"c2", "up"}),
                Layer("b2", "batch_norm", {"join"}), Layer("cast", "scale"),
                Layer("j2", "add", {"b2", "cast"}), Layer("r2", "relu"),
                Window("p2", "max_pool", 2, 2), Layer("head", "scale"), Linear("fc", 10)});
}

config::ModelConfig WithConcat() {
  return Model({Conv("c1", 4), Layer("b1", "batch_norm"), Layer("s1", "silu"), Conv("c2", 3),
                Layer("g2", "sigmoid"), Conv("c3", 2, {"s1"}),
                Layer("join", "concat", {"g2", "c3"}), Conv("c4", 4),
                Layer("twice", "concat", {"c4", "input", "c4"}), Layer("b2", "batch_norm"),
                Layer("r2", "relu"), Layer("last", "concat", {"r2", "s1"}),
                Layer("pool", "global_avg_pool"), Linear("fc", 10)});
}

config::ModelConfig WithActivations() {
  return Model({Conv("c1", 4), Layer("b1", "batch_norm"), Layer("a1", "relu6"), Conv("c2", 4),
                Changed(Layer("a2", "hardtanh"), [](auto& l) { l.min = -2, l.max = 0.5; }),
                Changed(Layer("a3", "leaky_relu"), [](auto& l) { l.slope = 0.25; }),
                Layer("join", "add", {"a3", "a1"}), Layer("a4", "tanh"), Conv("c3", 4),
                Layer("a5", "hardsigmoid"), Layer("a6", "hardswish"), Layer("a7", "gelu"),
                Layer("join2", "add", {"a7", "a6"}), Layer("a8", "hardtanh"), Conv("c4", 4),
                Changed(Layer("a9", "gelu"), [](auto& l) { l.approximate = "tanh"; }),
                Layer("pool", "global_avg_pool"), Linear("fc", 10)});
}

config::ModelConfig WithDecoder() {
  const auto transposed = [&](const char* name, int channels) {
    return Changed(Conv(name, channels), [](auto& l) {
      l.kind = "conv_transpose2d", l.kernel = l.stride = {2, 2}, l.padding = {0, 0};
    });
  };
  return Model({Conv("c1", 4),
                Changed(Layer("a1", "prelu"), [](auto& l) { l.per_channel = true; }),
                Window("p1", "max_pool", 2, 2),
                Conv("c2", 8),
                Changed(Layer("a2", "elu"), [](auto& l) { l.alpha = 0.5; }),
                Conv("c3", 8),
                Layer("b3", "batch_norm"),
                Layer("r3", "relu"),
                transposed("t1", 4),
                Layer("b4", "batch_norm"),
                Layer("r4", "relu"),
                Changed(Layer("u1", "upsample", {"a2"}),
                        [](auto& l) { l.mode = "bilinear", l.align_corners = true; }),
                Changed(Layer("s1", "pixel_shuffle", {"c3"}), [](auto& l) { l.scale = 2; }),
                Layer("joined", "concat", {"r4", "u1", "s1", "a1"}),
                Changed(Layer("a3", "softplus"), [](auto& l) { l.beta = 2, l.threshold = 5; }),
                Changed(Layer("a4", "prelu"), [](auto& l) { l.per_channel = true; }),
                Changed(Layer("u2", "upsample"), [](auto& l) { l.mode = "bilinear", l.scale = 3; }),
                Conv("c5", 4),
                Layer("pool", "global_avg_pool"),
                Linear("fc", 10)});
}

config::ModelConfig WithGates() {
  return Model({Conv("c1", 4),
                Changed(Layer("n1", "group_norm"), [](auto& l) { l.groups = 2; }),
                Layer("pool1", "global_avg_pool"),
                Conv("squeeze", 4),
                Layer("gate", "hardsigmoid"),
                Layer("gated", "multiply", {"gate", "n1"}),
                Changed(Layer("s1", "channel_scale"), [](auto& l) { l.value = 0.5; }),
                Changed(Layer("d1", "stochastic_depth"), [](auto& l) { l.rate = 0.25; }),
                Layer("j1", "add", {"d1", "n1"}),
                Layer("square", "multiply", {"j1", "j1"}),
                Conv("c2", 4),
                Changed(Layer("half", "slice"), [](auto& l) { l.channels = 3, l.first = 1; }),
                Changed(Layer("less", "affine"), [](auto& l) { l.factor = 0.5, l.offset = -1; }),
                Layer("whole", "concat", {"less", "half", "c2"}),
                Conv("c5", 4),
                Layer("n2", "layer_norm"),
                Layer("both", "multiply", {"n2", "square"}),
                Layer("again", "multiply", {"both", "gate"}),
                Changed(Window("p1", "max_pool", 2, 2), [](auto& l) { l.ceil_mode = true; }),
                Changed(Layer("up", "upsample"), [](auto& l) { l.scale = 3; }),
                Changed(Window("p2", "avg_pool", 3, 2),
                        [](auto& l) {
                          l.ceil_mode = true, l.count_include_pad = false, l.padding = {1, 1};
                        }),
                Changed(Layer("p3", "adaptive_avg_pool"),
                        [](auto& l) {
                          l.size = {2, 3};
                        }),
                Changed(Layer("p4", "adaptive_avg_pool"),
                        [](auto& l) {
                          l.size = {1, 1};
                        }),
                Changed(Layer("d2", "stochastic_depth"), [](auto& l) { l.mode = "batch"; }),
                Linear("fc", 10)});
}

config::ModelConfig WithUnpooling() {
  const auto ceil = [](auto& l) { l.ceil_mode = true; };
  const auto unpool = [&](const std::string& name, const std::string& pool, bool whole) {
    return Changed(Layer(name, "max_unpool"), [&](auto& l) { l.pool = pool, l.whole = whole; });
  };
  return Model(
      {Conv("c1", 8),
       Changed(Layer("lrn", "lrn"),
               [](auto& l) {
                 l.size = {3, 3};
               }),
       Changed(Window("p1", "max_pool", 2, 2), ceil), Conv("c2", 8),
       Changed(Window("p2", "max_pool", 2, 2), ceil), Conv("c3", 8), unpool("u2", "p2", true),
       Conv("c4", 8), unpool("u1", "p1", false), Layer("join", "add", {"u1", "lrn"}),
       Changed(Layer("norm", "l2_normalize"), [](auto& l) { l.value = 5; }),
       Changed(Layer("again", "max_unpool", {"c2"}), [](auto& l) { l.pool = "p1"; }),
       Conv("c5", 12), Layer("boxes", "concat_boxes", {"norm", "c5", "norm"}), Linear("fc", 10)});
}

config::ModelConfig WithTwoOutputs() {
  config::ModelConfig model =
      Model({Conv("c1", 4), Layer("b1", "batch_norm"), Layer("r1", "relu"), Conv("c2", 4),
             Layer("locations", "batch_norm"), Layer("r2", "relu"), Conv("c3", 4),
             Layer("b3", "batch_norm"), Layer("r3", "relu"), Layer("join", "add", {"r3", "r1"}),
             Conv("scores", 11)});
  model.outputs = {"locations", "scores"};
  return model;
}

config::ModelConfig WithSequences() {
  config::LayerConfig place = Layer("place", "position_embedding"), rope = Layer("rope", "rope");
  config::LayerConfig attention = Layer("attn", "attention", {"rope", "k", "v"});
  place.context = 20, rope.heads = attention.heads = 2;
  rope.inputs = {"q"};
  return Model({Conv("patch", 8), Layer("token", "class_token"), place, Layer("norm", "rms_norm"),
                Linear("q", 8, {"norm"}), Linear("k", 8, {"norm"}), Linear("v", 8, {"norm"}), rope,
                attention, Layer("p", "softmax"), Layer("add", "add", {"p", "place"}),
                Layer("first", "select"), Linear("fc", 10)});
}

std::vector<TestNetwork> AllNetworks() {
  const Shape mnist{5, 28, 28, 1}, cifar{5, 32, 32, 3};
  std::vector<TestNetwork> all = {{"mlp", Zoo("mlp"), mnist},
                                  {"lenet", Zoo("lenet"), mnist},
                                  {"resnet20", Zoo("resnet20"), cifar},
                                  {"vgg11", Zoo("vgg11"), cifar}};
  config::ModelConfig projection = Zoo("resnet20"), dropped = Zoo("vgg11");
  projection.shortcut = "B";
  dropped.dropout = 0.25;
  all.push_back({"resnet20 B", projection, cifar});
  all.push_back({"vgg11 dropout", dropped, cifar});
  all.push_back({"pre-activation", PreActivation(), {5, 8, 8, 3}});
  all.push_back({"awkward", Awkward(), {5, 10, 9, 3}});
  all.push_back({"bare shortcut", BareShortcut(), {5, 6, 6, 3}});
  all.push_back({"with input", WithInput(), {5, 6, 6, 3}});
  all.push_back({"with casts", WithCasts(), {5, 6, 6, 3}});
  all.push_back({"with concat", WithConcat(), {5, 6, 6, 3}});
  all.push_back({"with gates", WithGates(), {5, 6, 7, 3}});
  all.push_back({"with a decoder", WithDecoder(), {5, 6, 8, 3}});
  all.push_back({"with activations", WithActivations(), {5, 6, 6, 3}});
  all.push_back({"with unpooling", WithUnpooling(), {5, 9, 7, 3}});
  all.push_back({"with two outputs", WithTwoOutputs(), {5, 1, 12, 3}, Task::kDetection});
  const Task segments = Task::kSegmentation, detects = Task::kDetection;
  all.push_back({"small segnet", SmallSegNet(), {5, 9, 11, 3}, segments});
  all.push_back({"small ssd", SmallSsd(false), {5, 6, 8, 3}, detects});
  all.push_back({"small ssd with batch norm", SmallSsd(true), {5, 6, 8, 3}, detects});
  return all;
}

}  // namespace ada::graph::test
