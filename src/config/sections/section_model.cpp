// The keys of `model`: a network of the zoo or one's own. The keys that a network knows are given
// here by its name; graph/network/zoo.cpp builds its layers from ModelConfig. kZoo has the order of
// messages. Keys that only gpt2, llama and vit have stand with the sizes of their presets.
#include "config/sections/sections.h"
#include "config/transformer.h"
#include "io/text.h"

namespace ada::config {
namespace {

// Groups of names that have the same keys.
const Names kCifarResnets = {"resnet20", "resnet32", "resnet44", "resnet56", "resnet110"};
const Names kCifarPreResnets = {"preresnet20", "preresnet32",  "preresnet44",
                                "preresnet56", "preresnet110", "preresnet164"};
const Names kWideResnets = {"wide_resnet28_10", "wide_resnet16_8"};
const Names kVggs = {"vgg11", "vgg13", "vgg16", "vgg19"};
const Names kImageNetNetworks = {"resnet18",  "resnet34",        "resnet50",     "resnet101",
                                 "resnet152", "wide_resnet50_2", "mobilenet_v2", "densenet121"};
const Names kSegNets = {"segnet_basic", "segnet"};
const Names kSsds = {"ssd300", "ssd512"};

Names Concatenated(std::initializer_list<Names> parts) {
  Names all;
  for (const Names& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Names kZoo = Concatenated({{"mlp", "lenet"},
                                 kCifarResnets,
                                 kCifarPreResnets,
                                 kWideResnets,
                                 kVggs,
                                 kImageNetNetworks,
                                 kSegNets,
                                 kSsds,
                                 TransformerNames()});

// `layers`, `hidden` and `width` mean one thing to transformers and another to other networks, so
// each is a key by choice over two fields.
Key LayersOrNumberKey(ModelConfig& model) {
  return ByChoice(LayersKey(model.layers).For({"layers"}),
                  Integer("layers", model.transformer.layers, FromTo(1, 1000),
                          "transformers: how many blocks")
                      .For(TransformerNames()),
                  model.zoo)
      .Default("required without `zoo` or `file`; transformers: 4");
}

Key HiddenKey(ModelConfig& model) {
  return ByChoice(
             IntegerList("hidden", model.hidden, FromTo(1, 1'000'000), "sizes of the hidden layers")
                 .For({"mlp"}),
             Integer("hidden", model.transformer.hidden, FromTo(1, 1'000'000),
                     "transformers: channels between the two layers of a block's MLP")
                 .For(TransformerNames()),
             model.zoo)
      .Default("[512, 512]; gpt2, vit: 4 width; llama: 8/3 width, up to a multiple of 32");
}

Key WidthKey(ModelConfig& model) {
  return ByChoice(
             Number("width", model.width, FromTo(0.25, 1),
                    "factor of the channels between input and outputs, to the nearest multiple of "
                    "8")
                 .For(Concatenated({kSegNets, kSsds})),
             Integer("width", model.transformer.width, FromTo(1, 1'000'000),
                     "transformers: channels of a token")
                 .For(TransformerNames()),
             model.zoo)
      .Default("1; transformers: 128");
}

// Not written as long as only the data's files say it.
Key ClassesKey(ModelConfig& model) {
  Key key = Integer("classes", model.classes, FromTo(1, 1'000'000),
                    "outputs of the last layer; at least the data set's classes; of detection "
                    "without the background");
  key.unused = [&model] { return model.classes == 0; };
  return key.Default("the data set's");
}

// In the order of messages: networks, then their presets.
const Names kGpt2s = {"gpt2", "gpt2_124m"};
const Names kLlamas = {"llama", "llama_tiny"};
const Names kVits = {"vit", "vit_b_16"};

// All names of two families.
Names Both(Names names, const Names& others) {
  names.insert(names.end(), others.begin(), others.end());
  return names;
}

// Rotary positions turn pairs of values of each head by angles that grow with the position (Su et
// al. 2021).
Section RopeSection(RopeConfig& rope) {
  Section section;
  section.path = "model.rope";
  section.keys = {
      WordText("pairing", rope.pairing, {"half", "interleaved"},
               "which two values of a head turn together: i and i + rotary / 2, or 2 i and 2 i + "
               "1"),
      Number("base", rope.base, Above(0), "pair i of token t turns by t base^(-2 i / rotary)"),
      Integer("rotary", rope.rotary, FromTo(2, 1'000'000),
              "values of a head that turn, an even number; the others stay")
          .Default("all of a head"),
  };
  return section;
}

}  // namespace

Section ModelSection(ModelConfig& model) {
  Section section;
  section.path = "model";
  section.discriminator = "zoo";
  section.choices = kZoo;
  // A model has a name or a list of layers: the list is a choice of its own, called as its key is.
  section.alternative = "layers";
  section.where = &model.where;
  section.keys = {
      WordText("zoo", model.zoo, kZoo, "a network of the zoo")
          .Default("required without `layers` or `file`"),
      ModelFileKey(),
      LayersOrNumberKey(model),
      PlacedTexts("outputs", model.outputs, model.outputs_where,
                  "layers that the loss is of; detection: that of the locations of boxes, then "
                  "that of their scores")
          .Default("the last layer")
          .For({"layers"})
          .WrittenIf([&model] { return !model.outputs.empty(); }),
      ClassesKey(model),
      WordText(
          "shortcut", model.shortcut, {"A", "B", "reference"},
          "A: every second pixel, channels filled with zeros; B: a 1x1 convolution; reference: "
          "that in all three stages, and the stride in the block's second convolution")
          .For(kCifarResnets),
      HiddenKey(model),
      Number("dropout", model.dropout, FromBelow(0, 1),
             "share of values set to zero before the last layer, in wide_resnet between the "
             "convolutions of a block, in transformers where their programs have it; 0: none")
          .Default("0; mobilenet_v2: 0.2")
          .For(Concatenated({kVggs, kWideResnets, {"mobilenet_v2"}, TransformerNames()})),
      Switch("plain", model.plain, "without batch norm; convolutions have a bias").For(kVggs),
      WidthKey(model),
      Switch("batch_norm", model.batch_norm,
             "after every convolution but those that give the outputs; convolutions before it have "
             "no bias")
          .For(kSsds),
      Switch("cast", model.cast,
             "a layer of kind scale between each output and the loss, `cast`, or `cast.locations` "
             "and `cast.scores`: the cast of the paper, with formats and a scale of its own")
          .For(Concatenated({kSegNets, kSsds})),
  };
  for (Key& key : TransformerKeys(model.transformer)) section.keys.push_back(std::move(key));
  section.keys.push_back(Nested("init", InitSection(model.init), "how the weights start"));
  // Defaults that depend on the network: dropout, how weights start, and the sizes of a
  // transformer's preset. They are set before any key is read, so keys that are given beat them.
  section.set_defaults = [&model, init = section.keys.back().section](const std::string& choice) {
    model.dropout = choice == "mobilenet_v2" ? 0.2 : 0;  // as in its paper's program
    const bool transformer = Contains(TransformerNames(), choice);
    const InitScheme scheme = transformer               ? InitScheme::kNormal
                              : Contains(kSsds, choice) ? InitScheme::kLecunUniform
                                                        : InitScheme::kHeNormal;
    constexpr double kStd = 0.02;  // GPT-2's
    StartBy(scheme, transformer ? kStd : InitRule().std, *init, model.init);
    if (transformer) model.transformer = TransformerDefaults(choice);
  };
  section.check = [&model](const YamlNode& map, const ReadContext& context) {
    if (Contains(TransformerNames(), model.zoo)) CheckTransformer(model.transformer, map, context);
  };
  section.needs_one = {{"zoo", "layers", "file"},
                       "expected `zoo:` with the name of a network, `layers:`, or `file:`"};
  return section;
}

// A name that is added here also needs a family above and, where it is a preset, sizes below.
const Names& TransformerNames() {
  static const Names names = {"gpt2", "llama", "vit", "gpt2_124m", "llama_tiny", "vit_b_16"};
  return names;
}

bool IsGpt2(const std::string& zoo) { return Contains(kGpt2s, zoo); }
bool IsLlama(const std::string& zoo) { return Contains(kLlamas, zoo); }
bool IsVit(const std::string& zoo) { return Contains(kVits, zoo); }

// gpt2_124m: Radford et al. 2019; llama_tiny: llama2.c's stories15M; vit_b_16: Dosovitskiy et al.
// 2021, as torchvision has it.
// The families differ by what their programs do: GPT-2 ties the last layer to the embedding and
// takes the tanh form of GELU, LLaMA has no biases, ViT a smaller epsilon.
TransformerConfig TransformerDefaults(const std::string& zoo) {
  TransformerConfig t;
  if (IsGpt2(zoo)) t.tied = true, t.approximate = "tanh";
  if (IsLlama(zoo)) t.bias = false;
  if (IsVit(zoo)) t.eps = 1e-6;
  if (zoo == "gpt2_124m") {
    t.layers = t.heads = 12, t.width = 768, t.context = 1024, t.vocabulary = 50257;
  } else if (zoo == "llama_tiny") {
    t.layers = t.heads = 6, t.width = 288, t.context = 256, t.vocabulary = 32000;
    t.tied = true;
  } else if (zoo == "vit_b_16") {
    t.layers = t.heads = 12, t.width = 768, t.patch = 16;
  }
  return t;
}

std::vector<Key> TransformerKeys(TransformerConfig& transformer) {
  TransformerConfig& t = transformer;
  const Range size = FromTo(1, 1'000'000);
  return {
      Integer("heads", t.heads, size, "query heads of attention")
          .For(TransformerNames())
          .Default("4; gpt2_124m, vit_b_16: 12; llama_tiny: 6"),
      Integer("kv_heads", t.kv_heads, size,
              "key and value heads, of which `heads` is a multiple; each serves as many queries")
          .For(TransformerNames())
          .Default("heads"),
      Integer("head_dim", t.head_dim, size, "channels of a head")
          .For(TransformerNames())
          .Default("width / heads"),
      Integer("context", t.context, size,
              "tokens of a sequence, at most; vit: patches and the class token")
          .For(TransformerNames())
          .Default("the data's; gpt2_124m: 1024; llama_tiny: 256"),
      Integer("vocabulary", t.vocabulary, size,
              "different tokens, which are the classes of the next one; vit: as `classes`")
          .For(TransformerNames())
          .Default("classes; gpt2_124m: 50257; llama_tiny: 32000"),
      Switch("tied", t.tied, "the last layer multiplies by the embedding's weight")
          .For(Both(kGpt2s, kLlamas))
          .Default("true; llama: false"),
      Switch("bias", t.bias,
             "biases of linear layers, of norms and of vit's conv_proj; the last layer of gpt2 and "
             "llama has none")
          .For(TransformerNames())
          .Default("true; llama, llama_tiny: false"),
      Switch(
          "keep_probabilities", t.keep_probabilities,
          "attention keeps its probabilities, in fp32, for the backward pass; false: it computes "
          "them anew")
          .For(TransformerNames()),
      WordText("approximate", t.approximate, {"none", "tanh"},
               "gelu: with the normal distribution, or with a tanh near it")
          .For(Both(kGpt2s, kVits))
          .Default("tanh; vit, vit_b_16: none"),
      Number("eps", t.eps, Above(0), "added to the variance in norms")
          .For(TransformerNames())
          .Default("1.0e-05; vit, vit_b_16: 1.0e-06"),
      Integer("patch", t.patch, FromTo(1, 1000), "pixels of a side of what becomes a token")
          .For(kVits)
          .Default("4; vit_b_16: 16"),
      Nested("rope", RopeSection(t.rope), "rotary positions").For(kLlamas),
  };
}

// Sizes that depend on each other. Each step looks only at keys that were read without a problem.
void CheckTransformer(const TransformerConfig& transformer, const YamlNode& map,
                      const ReadContext& context) {
  const TransformerConfig& t = transformer;
  const auto clean = [&](const char* key) {
    return context.problems.Clean({Join(context.path, key)});
  };
  const auto add = [&](const char* key, const std::string& message) {
    const YamlNode* value = map.Find(key);
    context.problems.Add(value ? *value : context.key, Join(context.path, key), message);
  };
  if (!clean("heads") || !clean("width")) return;
  const std::string heads = std::to_string(t.heads);
  if (clean("kv_heads") && t.heads % t.KvHeads() != 0)
    add("kv_heads", "must divide heads, " + heads + "; got " + std::to_string(t.KvHeads()));
  if (!clean("head_dim")) return;
  if (!t.head_dim && t.width % t.heads != 0)
    return add("width", "must be a multiple of heads, " + heads +
                            ", where head_dim is not given; "
                            "got " +
                            std::to_string(t.width));
  constexpr std::int64_t kMostChannels = 1'000'000;  // as of `width`
  if (std::int64_t{t.heads} * t.HeadDim() > kMostChannels)
    return add("head_dim", "times heads, " + heads + ", must not be above " +
                               std::to_string(kMostChannels) + "; got " +
                               std::to_string(t.HeadDim()));
  if (!t.rope.rotary || !clean("rope.rotary")) return;
  if (*t.rope.rotary % 2 == 0 && *t.rope.rotary <= t.HeadDim()) return;
  const YamlNode* rope = map.Find("rope");
  const YamlNode* rotary = rope ? rope->Find("rotary") : nullptr;
  context.problems.Add(rotary ? *rotary : context.key, Join(context.path, "rope.rotary"),
                       "expected an even number up to head_dim, " + std::to_string(t.HeadDim()) +
                           "; got " + std::to_string(*t.rope.rotary));
}

}  // namespace ada::config
