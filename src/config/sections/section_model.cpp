// The keys of `model`: a network of the zoo or one's own.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const Names kZoo = {"mlp",   "lenet", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110",
                    "vgg11", "vgg13", "vgg16",    "resnet18", "resnet34", "resnet50"};
const Names kCifarResnets = {"resnet20", "resnet32", "resnet44", "resnet56", "resnet110"};
const Names kVggs = {"vgg11", "vgg13", "vgg16"};

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
      WordText("zoo", model.zoo, kZoo, "a network of the zoo").Default("required without `layers`"),
      LayersKey(model.layers).For({"layers"}),
      ClassesKey(model),
      WordText("shortcut", model.shortcut, {"A", "B"},
               "A: every second pixel, channels filled with zeros; B: a 1x1 convolution")
          .For(kCifarResnets),
      IntegerList("hidden", model.hidden, FromTo(1, 1'000'000), "sizes of the hidden layers")
          .For({"mlp"}),
      Number("dropout", model.dropout, FromBelow(0, 1),
             "share of values set to zero before the last layer; 0: none")
          .For(kVggs),
      Nested("init", InitSection(model.init), "how the weights start"),
  };
  section.needs_one = {{"zoo", "layers"},
                       "expected `zoo:` with the name of a network, or `layers:`"};
  return section;
}

}  // namespace ada::config
