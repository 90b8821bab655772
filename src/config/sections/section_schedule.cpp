// The keys of `schedule`.
// The fields are those of optim::Schedule, which has the formulas; names and shapes are those of
// torch.optim.lr_scheduler.
#include <algorithm>

#include "config/sections/sections.h"

namespace ada::config {
namespace {

using optim::Schedule;
using Warmup = Schedule::Warmup;
using OneCycle = Schedule::OneCycle;

const EnumNames<Schedule::Kind> kSchedules = {
    {"constant", Schedule::Kind::kConstant}, {"multistep", Schedule::Kind::kMultistep},
    {"step", Schedule::Kind::kStep},         {"cosine", Schedule::Kind::kCosine},
    {"linear", Schedule::Kind::kLinear},     {"cosine_restarts", Schedule::Kind::kCosineRestarts},
    {"poly", Schedule::Kind::kPoly},         {"one_cycle", Schedule::Kind::kOneCycle},
};
const EnumNames<Schedule::Unit> kUnits = {{"epochs", Schedule::Unit::kEpochs},
                                          {"steps", Schedule::Unit::kSteps}};
const EnumNames<Schedule::By> kBys = {{"step", Schedule::By::kStep},
                                      {"epoch", Schedule::By::kEpoch}};
const EnumNames<Schedule::Beyond> kBeyonds = {{"hold", Schedule::Beyond::kHold},
                                              {"climb", Schedule::Beyond::kClimb}};
const EnumNames<Warmup::Kind> kWarmups = {{"constant", Warmup::Kind::kConstant},
                                          {"linear", Warmup::Kind::kLinear},
                                          {"nanogpt", Warmup::Kind::kNanoGpt},
                                          {"huggingface", Warmup::Kind::kHuggingFace},
                                          {"llmc", Warmup::Kind::kLlmC}};
const EnumNames<OneCycle::Anneal> kAnneals = {{"cosine", OneCycle::Anneal::kCosine},
                                              {"linear", OneCycle::Anneal::kLinear}};

// Without kind and lr a warm-up rises linearly from 0; with an lr it stays at it, unless a kind
// says otherwise. Kinds named after programs take neither `lr` nor `counts`, whose values these
// programs fix.
void CheckWarmup(Warmup& warmup, const YamlNode& map, const ReadContext& context) {
  if (map.Find("kind") == nullptr && map.Find("lr") == nullptr) warmup.kind = Warmup::Kind::kLinear;
  for (const char* key : {"lr", "counts"})
    if (const YamlNode* given = map.Find(key); given != nullptr && warmup.by_name())
      context.problems.Add(*given, Join(context.path, key),
                           "belongs to kinds constant and linear; the other program says it");
  const YamlNode* steps = map.Find("steps");
  if (warmup.epochs > 0 && warmup.steps > 0 && steps) {
    context.problems.Add(*steps, Join(context.path, "steps"), "give either epochs or steps");
  }
  const bool warms = warmup.epochs > 0 || warmup.steps > 0;
  if (!warms || warmup.kind != Warmup::Kind::kConstant || warmup.lr > 0) return;
  const YamlNode* lr = map.Find("lr");
  context.problems.Add(lr ? *lr : context.key, Join(context.path, "lr"),
                       "a warm-up needs a learning rate above 0");
}

// A length of 0 epochs and 0 steps means no warm-up, whatever else is given.
Section WarmupSection(Warmup& warmup) {
  Section section;
  section.path = "schedule.warmup";
  section.keys = {
      Choice("kind", warmup.kind, kWarmups,
             "constant: `lr` throughout; linear: in a straight line from `lr` to the optimizer's; "
             "nanogpt, huggingface, llmc: in a line as those programs have it, before the schedule")
          .Default("linear; where `lr` is given, constant"),
      Number("epochs", warmup.epochs, FromTo(0, 1'000'000), "its length; 0: none"),
      Integer("steps", warmup.steps, FromTo(0, kMostSteps), "its length, instead of `epochs`"),
      Number("lr", warmup.lr, AtLeast(0), "the learning rate of its first step"),
      Switch("counts", warmup.counts,
             "its steps count for the schedule; false: the schedule begins after it"),
  };
  // A key is written only if it has an effect; the indices refer to the list above.
  section.keys[0].WrittenIf([&warmup] { return warmup.kind != Warmup().kind; });
  section.keys[2].WrittenIf([&warmup] { return warmup.steps > 0; });
  section.keys[3].WrittenIf([&warmup] { return !warmup.by_name(); });
  section.keys[4].WrittenIf([&warmup] { return !warmup.counts && !warmup.by_name(); });
  section.check = [&warmup](const YamlNode& map, const ReadContext& context) {
    CheckWarmup(warmup, map, context);
  };
  return section;
}

// The shape of OneCycleLR, in whose terms: pct_start, anneal_strategy, three_phase, div_factor and
// final_div_factor.
std::vector<Key> OneCycleKeys(OneCycle& shape) {
  std::vector<Key> keys = {
      Number("rise", shape.rise, FromTo(0, 1), "share of the length in which the rate climbs"),
      Choice("anneal", shape.anneal, kAnneals,
             "how the rate goes from one phase's end to the next"),
      Switch("three_phase", shape.three_phase,
             "down in as many steps as up, then on to the last rate"),
      Number("start_factor", shape.start_factor, AtLeast(1), "the first rate is lr divided by it"),
      Number("end_factor", shape.end_factor, AtLeast(1),
             "the last rate is the first divided by it"),
  };
  for (Key& key : keys) key.For({"one_cycle"});
  return keys;
}

// Milestones are in the schedule's unit, epochs or steps.
void CheckMilestones(const Schedule& schedule, const YamlNode& map, const ReadContext& context) {
  const YamlNode* list = map.Find("milestones");
  if (!list || schedule.kind != Schedule::Kind::kMultistep) return;
  const std::vector<int>& values = schedule.milestones;
  // Equal neighbors are refused as well.
  const bool rising =
      std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
  if (!rising) {
    const bool steps = schedule.unit == Schedule::Unit::kSteps;
    context.problems.Add(
        *list, Join(context.path, "milestones"),
        std::string("expected ") + (steps ? "steps" : "epochs") + " in rising order");
  }
}

// The way down has as many steps as the way up, so both must fit into the length.
void CheckOneCycle(const Schedule& schedule, const YamlNode& map, const ReadContext& context) {
  const YamlNode* three = map.Find("three_phase");
  if (!three || !schedule.one_cycle.three_phase || schedule.one_cycle.rise <= 0.5) return;
  context.problems.Add(*three, Join(context.path, "three_phase"),
                       "up and down need twice `rise` of the length: rise must be at most 0.5");
}

}  // namespace

Section ScheduleSection(Schedule& schedule) {
  const Names with_length = {"cosine", "linear", "poly", "one_cycle"};
  Section section;
  section.path = "schedule";
  section.discriminator = "kind";
  for (const auto& kind : kSchedules) section.choices.push_back(kind.first);
  section.default_choice = "constant";
  section.keys = {
      Choice("kind", schedule.kind, kSchedules, "shape of the learning rate over the run"),
      Choice("unit", schedule.unit, kUnits, "of milestones, every, length and period")
          .WrittenIf([&schedule] { return schedule.unit != Schedule().unit; }),
      Choice("by", schedule.by, kBys,
             "epoch: the rate of an epoch's first step holds for all of it")
          .WrittenIf([&schedule] { return schedule.by != Schedule().by; }),
      IntegerList("milestones", schedule.milestones, FromTo(1, kMostSteps),
                  "epochs after which lr is multiplied by gamma; [81]: from epoch 82 on")
          .For({"multistep"})
          .RequiredFor({"multistep"})
          .Default("required"),
      Number("every", schedule.every, Above(0),
             "epochs after which lr is multiplied by gamma, again and again")
          .For({"step"})
          .RequiredFor({"step"})
          .Default("required"),
      Number("gamma", schedule.gamma, Above(0), "factor at each milestone")
          .For({"multistep", "step"}),
      Number("power", schedule.power, Above(0), "exponent of the remaining share").For({"poly"}),
      Number("period", schedule.period, Above(0), "epochs of the first period")
          .For({"cosine_restarts"})
          .RequiredFor({"cosine_restarts"})
          .Default("required"),
      Integer("period_factor", schedule.period_factor, FromTo(1, 1000),
              "length of a period, in lengths of the one before it")
          .For({"cosine_restarts"}),
      Number("min_lr", schedule.min_lr, AtLeast(0), "learning rate at the end")
          .For({"cosine", "cosine_restarts", "linear", "poly"}),
      Number("length", schedule.length, FromTo(0, kMostSteps), "epochs until its end; 0: the run")
          .For(with_length)
          .WrittenIf([&schedule] { return schedule.length > 0; }),
      Choice("beyond", schedule.beyond, kBeyonds,
             "after `length`: hold min_lr, or climb again and come down, as torch's formula does")
          .For({"cosine"})
          .WrittenIf([&schedule] { return schedule.beyond != Schedule().beyond; }),
  };
  for (Key& key : OneCycleKeys(schedule.one_cycle)) section.keys.push_back(std::move(key));
  section.keys.push_back(
      Nested("warmup", WarmupSection(schedule.warmup), "another learning rate at the start"));
  section.check = [&schedule](const YamlNode& map, const ReadContext& context) {
    CheckMilestones(schedule, map, context);
    CheckOneCycle(schedule, map, context);
  };
  return section;
}

}  // namespace ada::config
