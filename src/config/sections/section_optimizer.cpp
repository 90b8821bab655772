// The keys of `optimizer`.
// The update rules and their names for constants are those of torch.optim. The fields are those of
// backend::UpdateRule, which an update op takes as it is.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

using backend::UpdateRule;

const EnumNames<UpdateRule::Kind> kOptimizers = {
    {"sgd", UpdateRule::Kind::kSgd},
    {"adam", UpdateRule::Kind::kAdam},
    {"adamw", UpdateRule::Kind::kAdamW},
};

const EnumNames<UpdateRule::Velocity> kVelocities = {
    {"gradients", UpdateRule::Velocity::kGradients},
    {"steps", UpdateRule::Velocity::kSteps},
};

// Factors and not rates: the schedule moves the rates of all groups together.
Section GroupSection(ParameterGroupConfig& group) {
  Section section;
  section.path = "optimizer.groups[]";
  section.where = &group.where;
  section.keys = {
      Text("match", group.match, "glob on parameter names; the last match wins, key by key")
          .Required(),
      Number("lr_factor", group.lr_factor, AtLeast(0), "factor of the learning rate; 0: frozen")
          .Default("1"),
      Number("decay_factor", group.decay_factor, AtLeast(0), "factor of weight_decay").Default("1"),
  };
  section.needs_one = {{"lr_factor", "decay_factor"}, "an entry needs lr_factor or decay_factor"};
  return section;
}

}  // namespace

// Keys of the adaptive kinds and those of SGD exclude each other; lr and weight_decay are of all.
Section OptimizerSection(OptimizerConfig& optimizer) {
  const Names adams = {"adam", "adamw"};
  Section section;
  section.path = "optimizer";
  section.discriminator = "kind";
  for (const auto& kind : kOptimizers) section.choices.push_back(kind.first);
  section.default_choice = "sgd";
  section.keys = {
      Choice("kind", optimizer.kind, kOptimizers, "the update rule, as in torch.optim"),
      Number("lr", optimizer.lr, Above(0), "learning rate").Default("sgd: 0.1; adam, adamw: 0.001"),
      Number("momentum", optimizer.momentum, FromBelow(0, 1), "share of the last update kept")
          .For({"sgd"}),
      Number("dampening", optimizer.dampening, FromBelow(0, 1),
             "share of a gradient that the momentum leaves out, but for the first")
          .For({"sgd"})
          .WrittenIf([&optimizer] { return optimizer.dampening != 0; }),
      Switch("nesterov", optimizer.nesterov, "Nesterov's momentum").For({"sgd"}),
      Choice("velocity", optimizer.velocity, kVelocities,
             "what the momentum gathers: gradients, as in torch, or steps, each made with the rate "
             "of its own time, as in Chainer, Caffe and Keras")
          .For({"sgd"})
          .WrittenIf([&optimizer] { return optimizer.velocity != UpdateRule().velocity; }),
      Number("weight_decay", optimizer.weight_decay, AtLeast(0),
             "L2 penalty; adamw: decoupled decay")
          .Default("0; adamw: 0.01"),
      Number("beta1", optimizer.beta1, FromBelow(0, 1), "decay of the mean").For(adams),
      Number("beta2", optimizer.beta2, FromBelow(0, 1), "decay of the mean square").For(adams),
      Number("epsilon", optimizer.epsilon, Above(0), "added to the root").For(adams),
      PlacedTexts("no_decay", optimizer.no_decay, optimizer.no_decay_where,
                  "globs on parameter names that weight_decay leaves alone; `vectors`: all tensors "
                  "of one axis"),
      Entries("groups", optimizer.groups, &GroupSection, "parameters with rates of their own")
          .WrittenIf([&optimizer] { return !optimizer.groups.empty(); }),
  };
  // torch.optim's defaults of lr and weight_decay by kind, but for SGD, whose lr torch requires.
  section.set_defaults = [&optimizer](const std::string& kind) {
    optimizer.lr = kind == "sgd" ? 0.1 : 1e-3;
    optimizer.weight_decay = kind == "adamw" ? 1e-2 : 0;
  };
  // Combinations that torch.optim.SGD refuses, or that would have no effect.
  section.check = [&optimizer](const YamlNode& map, const ReadContext& context) {
    const bool sgd = optimizer.kind == UpdateRule::Kind::kSgd;
    const auto refuse = [&](const char* key, const char* message) {
      context.problems.Add(*map.Find(key), Join(context.path, key), message);
    };
    if (sgd && optimizer.nesterov && optimizer.momentum == 0)
      refuse("nesterov", "needs a momentum above 0");
    if (sgd && optimizer.dampening > 0 && optimizer.momentum == 0)
      refuse("dampening", "needs a momentum above 0");
    if (sgd && optimizer.dampening > 0 && optimizer.nesterov)
      refuse("dampening", "Nesterov's momentum has none");
    if (sgd && optimizer.dampening > 0 && optimizer.velocity == UpdateRule::Velocity::kSteps)
      refuse("dampening", "belongs to velocity: gradients");
  };
  return section;
}

}  // namespace ada::config
