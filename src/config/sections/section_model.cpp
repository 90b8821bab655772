// The keys of `model`: a network of the zoo or one's own.
// The keys that a network knows are given here by its name; graph/network/zoo.cpp builds its layers
// from ModelConfig. kZoo has the order of messages.
#include "config/sections/sections.h"
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

}  // namespace ada::config
