// The keys of `optimizer`.
// The update rules and their names for constants are those of torch.optim. The fields are those of
// backend::UpdateRule, which an update op takes as it is.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

using backend::UpdateRule;
using Kind = UpdateRule::Kind;

const EnumNames<Kind> kOptimizers = {
    {"sgd", Kind::kSgd},
    {"adam", Kind::kAdam},
    {"adamw", Kind::kAdamW},
    {"lion", Kind::kLion},
    {"rmsprop", Kind::kRmsprop},
    {"nadam", Kind::kNadam},
    {"radam", Kind::kRadam},
    {"adagrad", Kind::kAdagrad},
    {"adamax", Kind::kAdamax},
    {"adafactor", Kind::kAdafactor},
    {"schedule_free", Kind::kScheduleFree},
    {"adopt", Kind::kAdopt},
    {"ademamix", Kind::kAdemamix},
    {"lamb", Kind::kLamb},
    {"stable_adamw", Kind::kStableAdamW},
    {"muon", Kind::kMuon},
};

const EnumNames<UpdateRule::Velocity> kVelocities = {
    {"gradients", UpdateRule::Velocity::kGradients},
    {"steps", UpdateRule::Velocity::kSteps},
};
const EnumNames<UpdateRule::AdjustLr> kAdjustments = {
    {"original", UpdateRule::AdjustLr::kOriginal},
    {"match_rms_adamw", UpdateRule::AdjustLr::kMatchRmsAdamW},
    {"spectral_unclamped", UpdateRule::AdjustLr::kSpectralUnclamped},
};
const EnumNames<NumberFormat> kProductFormats = {{"bf16", kBf16}, {"fp32", kFp32}, {"fp16", kFp16}};

// The originals' defaults by kind, but for the rates of SGD, schedule_free and stable_adamw, which
// have none there.
struct Defaults {
  double lr, weight_decay, epsilon, beta2, momentum;
};
Defaults DefaultsOf(Kind kind) {
  switch (kind) {
    case Kind::kSgd:
      return {0.1, 0, 1e-8, 0.999, 0};
    case Kind::kAdamW:
      return {1e-3, 1e-2, 1e-8, 0.999, 0};
    case Kind::kLion:
      return {1e-4, 0, 1e-8, 0.99, 0};
    case Kind::kRmsprop:
      return {1e-2, 0, 1e-8, 0.999, 0};
    case Kind::kNadam:
    case Kind::kAdamax:
      return {2e-3, 0, 1e-8, 0.999, 0};
    case Kind::kAdagrad:
      return {1e-2, 0, 1e-10, 0.999, 0};
    case Kind::kAdafactor:
      return {1e-2, 0, 1e-8, 0.999, 0};
    case Kind::kAdopt:
      return {1e-3, 0, 1e-6, 0.9999, 0};
    case Kind::kLamb:
      return {1e-3, 0, 1e-6, 0.999, 0};
    case Kind::kStableAdamW:
      return {1e-3, 1e-2, 1e-6, 0.99, 0};
    case Kind::kMuon:
      return {1e-3, 0.1, 1e-7, 0.999, 0.95};
    default:
      return {1e-3, 0, 1e-8, 0.999, 0};
  }
}
Kind KindOf(const std::string& word) {
  for (const auto& [name, kind] : kOptimizers)
    if (name == word) return kind;
  return Kind::kSgd;
}
void SetDefaults(const std::string& word, UpdateRule& rule, double& lr) {
  const Defaults defaults = DefaultsOf(KindOf(word));
  lr = defaults.lr, rule.weight_decay = defaults.weight_decay;
  rule.epsilon = defaults.epsilon, rule.beta2 = defaults.beta2;
  rule.momentum = defaults.momentum, rule.nesterov = word == "muon";
}

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

// The keys of single kinds. What two programs call differently is called as in torch.optim.
std::vector<Key> RuleKeys(UpdateRule& rule, double& lr) {
  const Names adams = {"adam", "adamw"};
  const Names averaged = {"adam",          "adamw", "lion",     "nadam", "radam",       "adamax",
                          "schedule_free", "adopt", "ademamix", "lamb",  "stable_adamw"};
  const Names rooted = {"adam",    "adamw",        "rmsprop",       "nadam", "radam",
                        "adagrad", "adamax",       "schedule_free", "adopt", "ademamix",
                        "lamb",    "stable_adamw", "muon"};
  return {
      Number("lr", lr, Above(0), "learning rate")
          .Default("sgd: 0.1; rmsprop, adagrad, adafactor: 0.01; nadam, adamax: 0.002; lion: "
                   "0.0001; others: 0.001"),
      Number("momentum", rule.momentum, FromBelow(0, 1), "share of the last update kept")
          .For({"sgd", "rmsprop", "muon"})
          .Default("0; muon: 0.95"),
      Number("dampening", rule.dampening, FromBelow(0, 1),
             "share of a gradient that the momentum leaves out, but for the first")
          .For({"sgd"})
          .WrittenIf([&rule] { return rule.dampening != 0; }),
      Switch("nesterov", rule.nesterov, "Nesterov's momentum")
          .For({"sgd", "muon"})
          .Default("false; muon: true"),
      Choice("velocity", rule.velocity, kVelocities,
             "what the momentum gathers: gradients, as in torch, or steps, each made with the rate "
             "of its own time, as in Chainer, Caffe and Keras")
          .For({"sgd"})
          .WrittenIf([&rule] { return rule.velocity != UpdateRule().velocity; }),
      Number("weight_decay", rule.weight_decay, AtLeast(0),
             "L2 penalty; adamw, lion, adafactor, lamb, stable_adamw, muon: decoupled decay")
          .Default("0; adamw, stable_adamw: 0.01; muon: 0.1"),
      Number("beta1", rule.beta1, FromBelow(0, 1), "decay of the mean").For(averaged),
      Number("beta2", rule.beta2, FromBelow(0, 1), "decay of the mean square")
          .For(averaged)
          .Default("0.999; adopt: 0.9999; lion, stable_adamw: 0.99"),
      Number("beta3", rule.beta3, FromBelow(0, 1), "decay of the slow mean").For({"ademamix"}),
      Number("mix", rule.mix, AtLeast(0), "factor of the slow mean (the paper's alpha)")
          .For({"ademamix"}),
      Number("epsilon", rule.epsilon, Above(0), "added to the root; muon: the least norm")
          .For(rooted)
          .Default("1e-08; adopt, lamb, stable_adamw: 1e-06; adagrad: 1e-10; muon: 1e-07"),
      Switch("amsgrad", rule.amsgrad, "divides by the largest mean square so far")
          .For(adams)
          .WrittenIf([&rule] { return rule.amsgrad; }),
      Number("alpha", rule.alpha, FromBelow(0, 1), "decay of the mean square").For({"rmsprop"}),
      Switch("centered", rule.centered, "divides by the deviation, not the mean square")
          .For({"rmsprop"}),
      Number("momentum_decay", rule.momentum_decay, AtLeast(0),
             "of Dozat's schedule of the momentum")
          .For({"nadam"}),
      Switch("decoupled_weight_decay", rule.decoupled_weight_decay,
             "weight_decay shrinks the weight, as in adamw")
          .For({"nadam", "radam"}),
      Number("lr_decay", rule.lr_decay, AtLeast(0), "lr / (1 + (step - 1) * lr_decay)")
          .For({"adagrad"}),
      Number("beta2_decay", rule.beta2_decay, FromTo(-100, 0),
             "the mean square's new share at step t: t^beta2_decay")
          .For({"adafactor"}),
      Number("d", rule.clip, Above(0), "the largest root mean square of an update")
          .For({"adafactor"}),
  };
}

// `others` of muon.
Section OthersSection(OptimizerConfig::Others& other) {
  Section section;
  section.path = "optimizer.others";
  section.discriminator = "kind";
  EnumNames<Kind> kinds = kOptimizers;
  kinds.pop_back();
  for (const auto& kind : kinds) section.choices.push_back(kind.first);
  section.default_choice = "adamw";
  section.keys = {Choice("kind", other.kind, kinds, "the update rule, as in torch.optim")};
  for (Key& key : RuleKeys(other, other.lr)) section.keys.push_back(std::move(key));
  section.set_defaults = [&other](const std::string& kind) { SetDefaults(kind, other, other.lr); };
  return section;
}

std::vector<Key> MuonKeys(OptimizerConfig& optimizer) {
  std::vector<Key> keys = {
      TextList("match", optimizer.match, {},
               "globs on the names of matrices (and of weights of more axes, as a matrix of the "
               "first axis and the others) that muon updates"),
      Choice("adjust_lr", optimizer.adjust_lr, kAdjustments,
             "what the shape does to the rate: original sqrt(max(1, rows / columns)), "
             "match_rms_adamw 0.2 sqrt(max(rows, columns)), spectral_unclamped sqrt(rows / "
             "columns)"),
      Integer("ns_steps", optimizer.ns_steps, FromTo(1, 99), "iterations of Newton-Schulz"),
      OfItems(NumberList("ns_coefficients", optimizer.ns_coefficient_list, FromTo(-1000, 1000),
                         "of the iteration: linear, cubic, quintic"),
              3, 3, "three numbers"),
      Choice("ns_format", optimizer.ns_format, kProductFormats,
             "format of the iteration's matrices; its sums are fp32"),
      Nested("others", OthersSection(optimizer.other), "the rule of all other parameters"),
  };
  for (Key& key : keys) key.For({"muon"});
  return keys;
}

// Combinations that torch.optim.SGD refuses, or that would have no effect.
void CheckSgd(const OptimizerConfig& optimizer, const YamlNode& map, const ReadContext& context) {
  const auto refuse = [&](const char* key, const char* message) {
    context.problems.Add(*map.Find(key), Join(context.path, key), message);
  };
  if (optimizer.nesterov && optimizer.momentum == 0) refuse("nesterov", "needs a momentum above 0");
  if (optimizer.dampening > 0 && optimizer.momentum == 0)
    refuse("dampening", "needs a momentum above 0");
  if (optimizer.dampening > 0 && optimizer.nesterov)
    refuse("dampening", "Nesterov's momentum has none");
  if (optimizer.dampening > 0 && optimizer.velocity == UpdateRule::Velocity::kSteps)
    refuse("dampening", "belongs to velocity: gradients");
}

}  // namespace

// Keys of the kinds exclude each other; lr and weight_decay are of all.
Section OptimizerSection(OptimizerConfig& optimizer) {
  Section section;
  section.path = "optimizer";
  section.discriminator = "kind";
  for (const auto& kind : kOptimizers) section.choices.push_back(kind.first);
  section.default_choice = "sgd";
  section.keys = {
      Choice("kind", optimizer.kind, kOptimizers, "the update rule, as in torch.optim")};
  for (Key& key : RuleKeys(optimizer, optimizer.lr)) section.keys.push_back(std::move(key));
  for (Key& key : MuonKeys(optimizer)) section.keys.push_back(std::move(key));
  section.keys.push_back(
      PlacedTexts("no_decay", optimizer.no_decay, optimizer.no_decay_where,
                  "globs on parameter names that weight_decay leaves alone; `vectors`: all tensors "
                  "of one axis"));
  section.keys.push_back(
      Entries("groups", optimizer.groups, &GroupSection, "parameters with rates of their own")
          .WrittenIf([&optimizer] { return !optimizer.groups.empty(); }));
  section.set_defaults = [&optimizer](const std::string& kind) {
    SetDefaults(kind, optimizer, optimizer.lr);
  };
  section.check = [&optimizer](const YamlNode& map, const ReadContext& context) {
    if (optimizer.kind == Kind::kSgd) CheckSgd(optimizer, map, context);
  };
  return section;
}

}  // namespace ada::config
