// The keys of `precision.accumulate`: how the sums of products are made. A rule is a name or a map
// of its own keys; it stands for all products, or `forward`, `dx` and `dw` have one each.
#include <algorithm>

#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

using scaling::Accumulator;
using scaling::AccumulatorRounding;
using scaling::LayerMatmul;

constexpr char kFp32Sums[] = "none";
constexpr char kExactWord[] = "exact";

// Unset: the key is missing; a matmul that is set, without a rule: sums in fp32.
using SumsField = std::optional<AccumulateConfig>;

const EnumNames<AccumulatorRounding> kIntoRoundings = {
    {"truncate", AccumulatorRounding::kTruncate},
    {"nearest", AccumulatorRounding::kNearest},
};

Names SumWords() {
  Names words = {kFp32Sums};
  for (const scaling::NamedAccumulator& named : scaling::NamedAccumulators())
    words.emplace_back(named.name);
  return words;
}

// The keys that a rule's map requires; no matmul has such a name.
bool IsSumRuleMap(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kMap &&
         (node.Find("group") || node.Find("fraction_bits") || node.Find("accumulator"));
}

Key FractionBitsKey(int& bits) {
  Range range = FromTo(1, scaling::kMostFractionBits);
  range.text = range.Text() + ", or exact";
  Key key = Integer("fraction_bits", bits, range,
                    "bits that are kept below the largest product of a group; exact: all");
  key.type = "integer or word";
  key.schemas.push_back(WordSchema({kExactWord}));
  key.read = [&bits, number = key.read](const YamlNode& node, const ReadContext& context) {
    if (IsWord(node, kExactWord))
      bits = Accumulator::kExact;
    else
      number(node, context);
  };
  key.write = [&bits, number = key.write] {
    return bits == Accumulator::kExact ? std::optional(Scalar(kExactWord)) : number();
  };
  return key.Required();
}

Key AccumulatorKey(NumberFormat& format) {
  const auto read = std::make_shared<std::optional<NumberFormat>>();
  Key key = WithoutTables(
      FormatKey("accumulator", *read, "the format that a group's sum is brought into"));
  key.read = [&format, read, plain = key.read](const YamlNode& node, const ReadContext& context) {
    plain(node, context);
    if (*read) format = **read;
  };
  key.write = [&format] { return std::optional(FormatNode(format)); };
  return key.Required();
}

Section SumRuleSection(Accumulator& rule) {
  Section section;
  // One table serves all products, so its path is that of an example.
  section.path = "precision.accumulate.forward";
  section.is_value = true;
  section.keys = {
      Integer("group", rule.group, FromTo(1, scaling::kMostOfGroup),
              "products that are added at once")
          .Required(),
      FractionBitsKey(rule.fraction_bits),
      AccumulatorKey(rule.format),
      Choice("rounding", rule.rounding, kIntoRoundings, "how the sum is brought into it"),
      Integer("promote", rule.promote, FromTo(0, 1'000'000'000),
              "products after which the accumulator is added to fp32; 0: never"),
  };
  section.check = [&rule](const YamlNode& map, const ReadContext& context) {
    if (!context.problems.Clean({Join(context.path, "group"), Join(context.path, "promote")}))
      return;
    const std::string refusal = scaling::RefuseAccumulator(rule);
    if (refusal.empty()) return;
    const YamlNode* promote = map.Find("promote");
    context.problems.Add(promote ? *promote : map, context.path, refusal);
  };
  return section;
}

YamlNode SumRuleNode(const Accumulator& rule) {
  for (const scaling::NamedAccumulator& named : scaling::NamedAccumulators())
    if (named.rule == rule) return Scalar(std::string(named.name));
  Accumulator copy = rule;
  return WriteSection(SumRuleSection(copy));
}

YamlNode SumsNode(const AccumulateConfig& matmul) {
  return matmul.rule ? SumRuleNode(*matmul.rule) : Scalar(kFp32Sums);
}

SumsField ReadSumRule(const YamlNode& node, const ReadContext& context) {
  if (IsWord(node, kFp32Sums)) return AccumulateConfig();
  if (node.kind == YamlNode::Kind::kMap) {
    Accumulator rule;
    const std::size_t problems = context.problems.count();
    ReadSection(node, SumRuleSection(rule), context);
    if (context.problems.count() > problems) return std::nullopt;
    return AccumulateConfig{rule};
  }
  const std::string text = node.kind == YamlNode::Kind::kScalar ? node.text : "";
  if (const Accumulator* named = scaling::AccumulatorNamed(text)) return AccumulateConfig{*named};
  const std::string nearest = NearestName(text, SumWords());
  context.problems.Add(
      node, context.path,
      Expected("none, " + std::string(scaling::NamedAccumulators().front().name) +
                   " or another name (`ada-train accumulators` lists them), or a map such as "
                   "{group: 32, fraction_bits: 13, accumulator: {exponent: 8, mantissa: 13}}",
               node) +
          (nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
  return std::nullopt;
}

ValueSchema SumRuleSchema(const char* marker) {
  return MapSchema([] { return ExampleSection<Accumulator>(SumRuleSection); }, marker);
}

Key SumsKey(const char* name, SumsField& field, const char* meaning) {
  Key key = MakeKey(name, "word or map", meaning);
  key.range = "none, a name or a map";
  key.default_text = kFp32Sums;
  key.schemas = {WordSchema(SumWords()), SumRuleSchema("")};
  key.section = ExampleSection<Accumulator>(SumRuleSection);
  key.read = [&field](const YamlNode& node, const ReadContext& context) {
    if (const SumsField read = ReadSumRule(node, context)) field = read;
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    return field ? std::optional(SumsNode(*field)) : std::nullopt;
  };
  return key;
}

Section SparedOfSums(SparedConfig& spared) {
  return SparedSection(spared, "precision.accumulate.spared");
}

// Where the key stands: in `precision`, or in an entry of its schedule or its layers.
enum class SumsOf { kAll, kSwitch, kLayers };

Section SumsSection(AccumulatesConfig& accumulate, SumsOf of) {
  const auto field = [&](LayerMatmul matmul) -> SumsField& {
    return accumulate.by_matmul[scaling::IndexOf(matmul)];
  };
  using enum LayerMatmul;
  Section section;
  section.path = of == SumsOf::kLayers ? "precision.layers[].accumulate" : "precision.accumulate";
  section.keys = {
      SumsKey(scaling::NameOf(kForward), field(kForward),
              "sums of y = x w; attention: of both products"),
      SumsKey(scaling::NameOf(kDx), field(kDx),
              "sums of dx = dy w; attention: of its four products"),
      SumsKey(scaling::NameOf(kDw), field(kDw), "sums of dw = x dy"),
  };
  if (of == SumsOf::kAll)
    section.keys.push_back(
        SumsKey("ns", accumulate.newton_schulz,
                "sums of the products of muon's Newton-Schulz iteration; a word "
                "for all products leaves them in fp32")
            .WrittenIf([&accumulate] { return accumulate.newton_schulz.has_value(); }));
  if (of != SumsOf::kLayers) {
    Key spared =
        OptionalMap("spared", accumulate.spared, SparedOfSums, "layers whose sums stay fp32");
    spared.default_text = "those of `operands`";
    section.keys.push_back(std::move(spared));
  }
  return section;
}

template <SumsOf kOf>
Key SumsKeyOf(AccumulatesConfig& accumulate) {
  Section (*const section_of)(AccumulatesConfig&) = [](AccumulatesConfig& of) {
    return SumsSection(of, kOf);
  };
  Key key = MakeKey("accumulate", "word or map",
                    "how sums of products are made: as a tensor core makes them, or in fp32");
  key.range = "none, a name, the keys of such a rule, or one for each product";
  key.default_text = kFp32Sums;
  key.section = ExampleSection<AccumulatesConfig>(section_of);
  // A map of a rule is told from one of products by a key that it requires.
  key.schemas = {SumRuleSchema("group"), WordSchema(SumWords()),
                 MapSchema([inner = key.section] { return inner; })};
  key.read = [&accumulate, section_of](const YamlNode& node, const ReadContext& context) {
    if (node.kind == YamlNode::Kind::kMap && !IsSumRuleMap(node))
      return ReadSection(node, section_of(accumulate), context);
    if (const SumsField all = ReadSumRule(node, context)) accumulate.by_matmul.fill(all);
  };
  key.write = [&accumulate, section_of]() -> std::optional<YamlNode> {
    if (!accumulate.given()) return std::nullopt;
    const auto& all = accumulate.by_matmul;
    const bool same = !accumulate.spared && !accumulate.newton_schulz &&
                      std::all_of(all.begin(), all.end(), [&](const SumsField& matmul) {
                        return matmul && matmul->rule == all.front()->rule;
                      });
    if (same) return SumsNode(*all.front());
    AccumulatesConfig copy = accumulate;
    return WriteSection(section_of(copy));
  };
  return key.WrittenIf([&accumulate] { return accumulate.given(); });
}

}  // namespace

bool AccumulatesConfig::given() const {
  return spared || newton_schulz ||
         std::any_of(by_matmul.begin(), by_matmul.end(),
                     [](const SumsField& field) { return field.has_value(); });
}

bool PrecisionConfig::accumulates() const {
  const auto any = [](const std::vector<LayerPrecisionConfig>& entries) {
    return std::any_of(entries.begin(), entries.end(),
                       [](const LayerPrecisionConfig& entry) { return entry.accumulate.given(); });
  };
  return accumulate.given() || any(layers) ||
         std::any_of(schedule.begin(), schedule.end(), [&](const PrecisionSwitchConfig& change) {
           return change.accumulate.given() || any(change.layers);
         });
}

Key AccumulatorRuleKey(std::optional<Accumulator>& rule, std::string meaning) {
  Key key = MakeKey("accumulate", "word or map", std::move(meaning));
  key.range = "a name or a map";
  Names names = SumWords();
  std::erase(names, kFp32Sums);
  key.schemas = {WordSchema(std::move(names)), SumRuleSchema("")};
  key.section = ExampleSection<Accumulator>(SumRuleSection);
  key.read = [&rule](const YamlNode& node, const ReadContext& context) {
    const SumsField read = ReadSumRule(node, context);
    if (!read) return;
    if (read->rule)
      rule = read->rule;
    else
      context.problems.Add(node, context.path, "sums in fp32 are what others are compared with");
  };
  key.write = [&rule]() -> std::optional<YamlNode> {
    return rule ? std::optional(SumRuleNode(*rule)) : std::nullopt;
  };
  return key;
}

Key AccumulateKey(AccumulatesConfig& accumulate) { return SumsKeyOf<SumsOf::kAll>(accumulate); }
Key SwitchedAccumulateKey(AccumulatesConfig& accumulate) {
  return SumsKeyOf<SumsOf::kSwitch>(accumulate);
}
Key LayerAccumulateKey(AccumulatesConfig& accumulate) {
  return SumsKeyOf<SumsOf::kLayers>(accumulate);
}

}  // namespace ada::config
