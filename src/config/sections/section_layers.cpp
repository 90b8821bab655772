// The keys of one layer of `model.layers`: those that its kind knows.
// layers/ has a row for each kind with the keys that it knows and those that it requires;
// this file gives every key its type and range, once for all kinds.
#include <algorithm>
#include <cctype>
#include <functional>
#include <string_view>

#include "config/sections/sections.h"
#include "io/text.h"
#include "layers/layer_kind.h"

namespace ada::config {
namespace {

using layers::LayerKind;

// The names of the kinds for which `holds` returns true.
Names KindsWhere(const std::function<bool(const LayerKind&)>& holds) {
  Names names;
  for (const LayerKind& kind : layers::LayerKinds()) {
    if (holds(kind)) names.emplace_back(kind.name);
  }
  return names;
}

// What `mode` may be, of all kinds.
// The table of keys is the same for all kinds, so the schema of `mode` has the words of each.
Names AllModes() {
  Names modes;
  for (const LayerKind& kind : layers::LayerKinds())
    modes.insert(modes.end(), kind.modes.begin(), kind.modes.end());
  return modes;
}

// A key that only some kinds have, according to their rows.
Key OfKinds(Key key) {
  const Names known =
      KindsWhere([&](const LayerKind& kind) { return Contains(kind.keys, key.name); });
  const Names need =
      KindsWhere([&](const LayerKind& kind) { return Contains(kind.required, key.name); });
  if (need == known) key.Default("required");
  return std::move(key.For(known).RequiredFor(need));
}

// The word `classes` instead of a number: model.classes. The size of a head
// then follows model.classes, even if only the data's files tell how many there
// are.
Key OrClasses(Key key, bool& is_per_class) {
  static constexpr char kWord[] = "classes";
  key.type += " or classes";
  key.schemas.push_back(WordSchema({kWord}));
  key.read = [&is_per_class, key](const YamlNode& node, const ReadContext& context) {
    long long number = 0;
    is_per_class = IsWord(node, kWord);
    if (is_per_class) return;
    if (ReadInteger(node, AnyNumber(), number).empty()) return key.read(node, context);
    context.problems.Add(
        node, context.path,
        Expected("a whole number, " + key.range + ", or classes", node) + QuotedHint(node));
  };
  key.write = [&is_per_class, write = key.write] {
    return is_per_class ? std::optional(Scalar(kWord)) : write();
  };
  return key;
}

// What RefuseLayerName lets pass. Braces are for {i} in repeat blocks.
constexpr char kLayerNamePattern[] = "^(?!(loss|input)$)[A-Za-z0-9_.{}-]+$";

// Names become cells of CSV files and beginnings of parameters' names, hence the few letters.
std::string RefuseLayerName(std::string& name) {
  const bool good = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '{' || c == '}';
  });
  if (!good) return "a layer's name has letters, digits, '_', '-' and '.' only";
  if (name == "loss" || name == "input")
    return "'" + name + "' is taken (the images, the loss); choose another";
  return "";
}

// "an add", "a concat".
std::string WithArticle(const std::string& word) {
  const bool vowel = std::string_view("aeiou").find(word[0]) != std::string_view::npos;
  return (vowel ? "an " : "a ") + word;
}

// What a row's keys ask of each other, and how many inputs its kind takes. Shapes are checked
// later, by the graph.
void CheckLayer(const LayerConfig& layer, const YamlNode& map, const ReadContext& context) {
  const auto add = [&](const char* key, const std::string& message) {
    const YamlNode* value = map.Find(key);
    context.problems.Add(value ? *value : context.key, Join(context.path, key), message);
  };
  const LayerKind* kind = layers::FindLayerKind(layer.kind);
  const std::string inputs = std::to_string(layer.inputs.size());
  if (kind && kind->joins) {
    if (map.Find("inputs") && layer.inputs.size() < static_cast<std::size_t>(kind->least_inputs))
      add("inputs", WithArticle(layer.kind) + " joins " +
                        (kind->least_inputs == 1 ? "one layer" : "two layers") + " or more; got " +
                        inputs);
  } else if (kind && layer.inputs.size() > 1) {
    add("inputs", WithArticle(layer.kind) + " has one input; got " + inputs);
  }
  const YamlNode* mode = map.Find("mode");
  const bool known = kind && Contains(kind->keys, "mode") && mode;
  if (known && Contains(AllModes(), layer.mode) && !Contains(kind->modes, layer.mode))
    add("mode", Expected(kind->modes[0] + " or " + kind->modes[1] + " for " + layer.kind, *mode));
  if (!kind || !kind->check) return;
  const layers::KeyProblem problem = kind->check(layer);
  if (!problem.message.empty()) add(problem.key, problem.message);
}

}  // namespace

// The key `kind` is the discriminator. A key that several kinds have means what its row of the
// table in layers/ makes of it, so its range here is the widest.
Section LayerSection(LayerConfig& layer) {
  const Names kinds = KindsWhere([](const LayerKind&) { return true; });
  Section section;
  section.path = "model.layers[]";
  section.discriminator = "kind";
  section.choices = kinds;
  section.where = &layer.where;
  section.keys = {
      Text("name", layer.name,
           "its name in logs and checkpoints; {i} in a repeat block is 1, 2, ...", RefuseLayerName)
          .Fits(kLayerNamePattern)
          .Required(),
      WordText("kind", layer.kind, kinds, "what it computes").Required(),
      TextList("inputs", layer.inputs, {}, "names of earlier layers; `input`: the images")
          .Default("the layer before")
          .RequiredFor(
              KindsWhere([](const LayerKind& kind) { return kind.joins && !kind.follows; })),
      OfKinds(OrClasses(Integer("channels", layer.channels, FromTo(1, 1'000'000),
                                "output channels; `classes`: model.classes of them"),
                        layer.is_per_class)),
      OfKinds(OrClasses(Integer("features", layer.features, FromTo(1, 1'000'000),
                                "outputs; `classes`: model.classes of them"),
                        layer.is_per_class)),
      OfKinds(Pair("kernel", layer.kernel, FromTo(1, 1000), "window")),
      OfKinds(Pair("stride", layer.stride, FromTo(1, 1000), "step of the window")
                  .Default("1; pooling: the kernel")),
      OfKinds(Pair("padding", layer.padding, FromTo(0, 1000),
                   "zeros on every side (max_pool: ignored cells)")),
      OfKinds(Pair("output_padding", layer.output_padding, FromTo(0, 1000),
                   "rows and columns more below and to the right of the output; less than stride")),
      OfKinds(Pair("dilation", layer.dilation, FromTo(1, 1000), "spacing of the kernel")),
      OfKinds(Integer("groups", layer.groups, FromTo(1, 1'000'000), "groups of channels")),
      OfKinds(Switch("bias", layer.bias, "add a trained constant per output")),
      OfKinds(
          Number(
              "eps", layer.eps, Above(0),
              "added to the variance (rms_norm: the mean of squares); l2_normalize: to the length")
              .Default("1.0e-05; layer_norm: 1.0e-06")),
      OfKinds(Number("momentum", layer.momentum, FromTo(0, 1),
                     "weight of a new batch in running statistics")),
      OfKinds(Number("initial_beta", layer.initial_beta, AnyNumber(),
                     "of every beta before the first step")
                  .WrittenIf([&layer] { return layer.initial_beta != 0; })),
      OfKinds(Number("min", layer.min, AnyNumber(), "smallest value that it gives")),
      OfKinds(Number("max", layer.max, AnyNumber(), "largest value that it gives")),
      OfKinds(Number("slope", layer.slope, AnyNumber(), "factor of what is negative")),
      OfKinds(WordText("approximate", layer.approximate, {"none", "tanh"},
                       "the formula: with the normal distribution, or with a tanh near it")),
      OfKinds(
          Number("rate", layer.rate, FromBelow(0, 1), "share of values, or images, set to zero")),
      OfKinds(WordText("mode", layer.mode, AllModes(),
                       "stochastic_depth: what is dropped together, an image (row) or all of a "
                       "batch; upsample: what a new pixel is, the nearest one or a mean of the "
                       "four around it by their distances (bilinear)")
                  .Default("row; upsample: nearest")
                  .WrittenIf([&layer] { return layer.mode != "nearest"; })),
      OfKinds(Switch("align_corners", layer.align_corners,
                     "of bilinear: the centers of the outermost pixels stay in the corners; false: "
                     "their edges do")
                  .WrittenIf([&layer] { return layer.mode == "bilinear"; })),
      OfKinds(Switch("ceil_mode", layer.ceil_mode,
                     "one more window where the stride leaves a rest of the input")),
      OfKinds(
          Switch("count_include_pad", layer.count_include_pad, "a mean counts padding as zeros")),
      OfKinds(Pair("size", layer.size, FromTo(1, 1000),
                   "of the output; lrn: channels that have a part in a sum")
                  .Default("required; lrn: 5")),
      OfKinds(
          Integer("scale", layer.scale, FromTo(1, 1000), "rows and columns that each one becomes")),
      OfKinds(Number("value", layer.value, AnyNumber(), "of every factor before the first step")
                  .Default("1.0e-06; l2_normalize: 20; prelu: 0.25")),
      OfKinds(Switch("per_channel", layer.per_channel,
                     "a trained slope for each channel; false: one for all")),
      OfKinds(Number("factor", layer.factor, AnyNumber(), "what every channel is multiplied by")),
      OfKinds(Number("offset", layer.offset, AnyNumber(), "and what is added then")),
      OfKinds(Integer("first", layer.first, FromTo(0, 999'999), "channel of the input")),
      OfKinds(Text("pool", layer.pool,
                   "the max_pool whose values go back to their places; {i} as in `name`")),
      OfKinds(Switch("whole", layer.whole,
                     "whole windows, as ChainerCV's: an odd size comes back one larger, and rows "
                     "and columns that the pool did not give are cut off the input")),
      OfKinds(Number("alpha", layer.alpha, AtLeast(0),
                     "lrn: factor of the mean of squares, `size` of them; elu: factor of e^x - 1 "
                     "where x is negative")
                  .Default("1.0e-04; elu: 1")),
      OfKinds(Number("beta", layer.beta, AnyNumber(),
                     "lrn: exponent of what values are divided by; softplus: factor of x, above 0")
                  .Default("0.75; softplus: 1")),
      OfKinds(Number("threshold", layer.threshold, AnyNumber(),
                     "where beta x is above it, softplus is x")),
      OfKinds(Number("k", layer.k, Above(0), "added to that mean times alpha")),
      OfKinds(Integer("vocabulary", layer.vocabulary, FromTo(1, 100'000'000),
                      "tokens that it knows: 0, 1, ... below this")),
      OfKinds(Integer("context", layer.context, FromTo(1, 100'000'000), "positions at most")),
      OfKinds(
          Text("weight_of", layer.weight_of,
               "an earlier embedding or linear layer whose weight, and rounded copy of it, this "
               "one multiplies instead of its own; {i} as in `name`")
              .Default("its own")
              .WrittenIf([&layer] { return !layer.weight_of.empty(); })),
      OfKinds(Integer("heads", layer.heads, FromTo(1, 1'000'000), "heads of the queries")),
      OfKinds(Integer("kv_heads", layer.kv_heads, FromTo(1, 1'000'000),
                      "heads of keys and values; must divide heads")
                  .Default("as heads")
                  .WrittenIf([&layer] { return layer.kv_heads != 0; })),
      OfKinds(Switch("causal", layer.causal, "a position sees itself and those before it alone")),
      OfKinds(Number("dropout", layer.dropout, FromBelow(0, 1),
                     "share of the probabilities set to zero")),
      OfKinds(WordText("probabilities", layer.probabilities, {"rounded", "fp32"},
                       "how they are multiplied with the values")),
      OfKinds(WordText("score_gradients", layer.score_gradients, {"rounded", "fp32"},
                       "how they are multiplied with keys and queries")),
      OfKinds(Switch("keep_probabilities", layer.keep_probabilities,
                     "keep them, in fp32, for the backward pass; false: it computes them anew")),
      OfKinds(
          Number("base", layer.base, Above(0), "of the angles: position * base^(-2 i / rotary)")),
      OfKinds(
          WordText("pairing", layer.pairing, {"half", "interleaved"},
                   "which values are turned together: i and i + rotary / 2, or 2 i and 2 i + 1")),
      OfKinds(Integer("rotary", layer.rotary, FromTo(2, 1'000'000),
                      "values of each head that are turned")
                  .Default("all of a head")
                  .WrittenIf([&layer] { return layer.rotary != 0; })),
      OfKinds(Integer("position", layer.position, FromTo(0, 99'999'999),
                      "which one of the input's positions")),
      OfKinds(Integer("values", layer.values, FromTo(1, 1'000'000),
                      "of a box: its location's or its classes'")),
  };
  for (Key& key : section.keys) {
    // An empty list means the layer before; written out it would read as no input at all.
    if (key.name == "inputs") {  // unset unless given
      key.write = [&layer, write = key.write]() -> std::optional<YamlNode> {
        return layer.inputs.empty() ? std::nullopt : write();
      };
    }
  }
  section.check = [&layer](const YamlNode& map, const ReadContext& context) {
    const LayerKind* kind = layers::FindLayerKind(layer.kind);
    if (kind && kind->stride_is_kernel && !map.Find("stride")) layer.stride = layer.kernel;
    // Defaults that differ by kind stand in the kind's row and are set where the key was not given.
    const auto misses = [&](const char* key) {
      return kind && Contains(kind->keys, key) && !map.Find(key);
    };
    if (misses("eps")) layer.eps = kind->eps;
    if (misses("value")) layer.value = kind->value;
    if (misses("size")) layer.size = {kind->size, kind->size};
    if (misses("alpha")) layer.alpha = kind->alpha;
    if (misses("beta")) layer.beta = kind->beta;
    if (misses("mode")) layer.mode = kind->modes.front();
    CheckLayer(layer, map, context);
  };
  return section;
}

}  // namespace ada::config
