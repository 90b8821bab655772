// The keys of `optimizer` and `schedule`.
#include <algorithm>

#include "config/sections/sections.h"

namespace ada::config {
namespace {

using backend::UpdateRule;
using optim::Schedule;

const EnumNames<UpdateRule::Kind> kOptimizers = {
    {"sgd", UpdateRule::Kind::kSgd},
    {"adam", UpdateRule::Kind::kAdam},
    {"adamw", UpdateRule::Kind::kAdamW},
};
const EnumNames<Schedule::Kind> kSchedules = {
    {"constant", Schedule::Kind::kConstant}, {"multistep", Schedule::Kind::kMultistep},
    {"cosine", Schedule::Kind::kCosine},     {"linear", Schedule::Kind::kLinear},
    {"poly", Schedule::Kind::kPoly},
};

Section WarmupSection(Schedule::Warmup& warmup) {
  Section section;
  section.path = "schedule.warmup";
  section.keys = {
      Number("epochs", warmup.epochs, FromTo(0, 1'000'000), "its length; 0: none"),
      Number("lr", warmup.lr, AtLeast(0), "the learning rate held meanwhile"),
  };
  section.check = [&warmup](const YamlNode& map, const ReadContext& context) {
    if (warmup.epochs > 0 && warmup.lr == 0) {
      const YamlNode* lr = map.Find("lr");
      context.problems.Add(lr ? *lr : context.key, Join(context.path, "lr"),
                           "a warm-up needs a learning rate above 0");
    }
  };
  return section;
}

void CheckMilestones(const Schedule& schedule, const YamlNode& map, const ReadContext& context) {
  const YamlNode* list = map.Find("milestones");
  if (!list || schedule.kind != Schedule::Kind::kMultistep) return;
  const std::vector<int>& values = schedule.milestones;
  const bool rising =
      std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
  if (!rising) {
    context.problems.Add(*list, Join(context.path, "milestones"),
                         "expected epochs in rising order");
  }
}

}  // namespace

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
      Switch("nesterov", optimizer.nesterov, "Nesterov's momentum").For({"sgd"}),
      Number("weight_decay", optimizer.weight_decay, AtLeast(0),
             "L2 penalty; adamw: decoupled decay")
          .Default("0; adamw: 0.01"),
      Number("beta1", optimizer.beta1, FromBelow(0, 1), "decay of the mean").For(adams),
      Number("beta2", optimizer.beta2, FromBelow(0, 1), "decay of the mean square").For(adams),
      Number("epsilon", optimizer.epsilon, Above(0), "added to the root").For(adams),
      PlacedTexts("no_decay", optimizer.no_decay, optimizer.no_decay_where,
                  "globs on parameter names that weight_decay leaves alone"),
  };
  section.set_defaults = [&optimizer](const std::string& kind) {
    optimizer.lr = kind == "sgd" ? 0.1 : 1e-3;
    optimizer.weight_decay = kind == "adamw" ? 1e-2 : 0;
  };
  section.check = [&optimizer](const YamlNode& map, const ReadContext& context) {
    const bool sgd = optimizer.kind == UpdateRule::Kind::kSgd;
    if (sgd && optimizer.nesterov && optimizer.momentum == 0) {
      context.problems.Add(*map.Find("nesterov"), Join(context.path, "nesterov"),
                           "needs a momentum above 0");
    }
  };
  return section;
}

Section ScheduleSection(Schedule& schedule) {
  Section section;
  section.path = "schedule";
  section.discriminator = "kind";
  for (const auto& kind : kSchedules) section.choices.push_back(kind.first);
  section.default_choice = "constant";
  section.keys = {
      Choice("kind", schedule.kind, kSchedules, "shape of the learning rate over the run"),
      IntegerList("milestones", schedule.milestones, FromTo(1, 1'000'000),
                  "epochs after which lr is multiplied by gamma; [81]: from epoch 82 on")
          .For({"multistep"})
          .RequiredFor({"multistep"})
          .Default("required"),
      Number("gamma", schedule.gamma, Above(0), "factor at each milestone").For({"multistep"}),
      Number("power", schedule.power, Above(0), "exponent of the remaining share").For({"poly"}),
      Number("min_lr", schedule.min_lr, AtLeast(0), "learning rate at the end")
          .For({"cosine", "linear", "poly"}),
      Nested("warmup", WarmupSection(schedule.warmup), "a constant learning rate at the start"),
  };
  section.check = [&schedule](const YamlNode& map, const ReadContext& context) {
    CheckMilestones(schedule, map, context);
  };
  return section;
}

}  // namespace ada::config
