// The keys of `model`: a network of the zoo or one's own, and how its weights start.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const Names kCifarResnets = {"resnet20", "resnet32", "resnet44", "resnet56", "resnet110"};
const Names kCifarPreResnets = {"preresnet20", "preresnet32",  "preresnet44",
                                "preresnet56", "preresnet110", "preresnet164"};
const Names kWideResnets = {"wide_resnet28_10", "wide_resnet16_8"};
const Names kVggs = {"vgg11", "vgg13", "vgg16", "vgg19"};
const Names kImageNetNetworks = {"resnet18",  "resnet34",        "resnet50",     "resnet101",
                                 "resnet152", "wide_resnet50_2", "mobilenet_v2", "densenet121"};

Names Together(std::initializer_list<Names> parts) {
  Names all;
  for (const Names& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Names kZoo = Together(
    {{"mlp", "lenet"}, kCifarResnets, kCifarPreResnets, kWideResnets, kVggs, kImageNetNetworks});

const EnumNames<InitScheme> kSchemes = {
    {"he_normal", InitScheme::kHeNormal},
    {"he_uniform", InitScheme::kHeUniform},
    {"xavier_normal", InitScheme::kXavierNormal},
    {"xavier_uniform", InitScheme::kXavierUniform},
};

// What says how to read a file is not written where there is none.
Key OfWeights(Key key, const InitConfig& init) {
  key.unused = [&init] { return init.weights.empty(); };
  return key;
}

void CheckInit(const InitConfig& init, const YamlNode& map, const ReadContext& context) {
  const std::string weights = Join(context.path, "weights");
  if (!init.weights.empty() || !context.problems.Clean({weights})) return;
  for (const char* key : {"require_all", "ignore_unknown", "skip"}) {
    const Entry* entry = map.FindEntry(key);
    if (!entry) continue;
    context.problems.Add(entry->key, Join(context.path, key),
                         "says how a file of weights is read; give `weights` too");
  }
}

Section InitSection(InitConfig& init) {
  Section section;
  section.path = "model.init";
  section.where = &init.where;
  section.keys = {
      Choice("scheme", init.scheme, kSchemes, "distribution of the first weights"),
      Text(
          "weights", init.weights,
          "safetensors file whose tensors replace the scheme's; those that it lacks are named in a "
          "warning",
          ExpandPath),
      OfWeights(Switch("require_all", init.require_all,
                       "a tensor of the network that `weights` lacks is an error"),
                init),
      OfWeights(Switch("ignore_unknown", init.ignore_unknown,
                       "leave out tensors of `weights` that the network does not have; false: they "
                       "are errors"),
                init),
      OfWeights(TextList("skip", init.skip, {},
                         "globs on layers or tensors that start by the scheme, whatever `weights` "
                         "has for them"),
                init),
  };
  section.check = [&init](const YamlNode& map, const ReadContext& context) {
    CheckInit(init, map, context);
  };
  return section;
}

// Not written as long as only the data's files say it.
Key ClassesKey(ModelConfig& model) {
  Key key = Integer("classes", model.classes, FromTo(2, 1'000'000),
                    "outputs of the last layer; at least the data set's classes");
  key.unused = [&model] { return model.classes == 0; };
  return key.Default("the data set's");
}

}  // namespace

Section ModelSection(ModelConfig& model) {
  Section section;
  section.path = "model";
  section.discriminator = "zoo";
  section.choices = kZoo;
  section.alternative = "layers";
  section.where = &model.where;
  section.keys = {
      WordText("zoo", model.zoo, kZoo, "a network of the zoo")
          .Default("required without `layers` or `file`"),
      ModelFileKey(),
      LayersKey(model.layers).For({"layers"}),
      ClassesKey(model),
      WordText(
          "shortcut", model.shortcut, {"A", "B", "reference"},
          "A: every second pixel, channels filled with zeros; B: a 1x1 convolution; reference: "
          "that in all three stages, and the stride in the block's second convolution")
          .For(kCifarResnets),
      IntegerList("hidden", model.hidden, FromTo(1, 1'000'000), "sizes of the hidden layers")
          .For({"mlp"}),
      Number("dropout", model.dropout, FromBelow(0, 1),
             "share of values set to zero before the last layer, in wide_resnet between the "
             "convolutions of a block; 0: none")
          .Default("0; mobilenet_v2: 0.2")
          .For(Together({kVggs, kWideResnets, {"mobilenet_v2"}})),
      Switch("plain", model.plain, "without batch norm; convolutions have a bias").For(kVggs),
      Nested("init", InitSection(model.init), "how the weights start"),
  };
  section.set_defaults = [&model](const std::string& choice) {
    model.dropout = choice == "mobilenet_v2" ? 0.2 : 0;  // as in its paper's program
  };
  section.needs_one = {{"zoo", "layers", "file"},
                       "expected `zoo:` with the name of a network, `layers:`, or `file:`"};
  return section;
}

}  // namespace ada::config
